"""Scripts as the commands that they would run: what a shell fills in, and what nobody can know without one."""

import random
import shutil
import subprocess

import pytest

from slipstick.frameworks.shell.marks import UNKNOWN
from slipstick.frameworks.shell.script import commands, read_script
from slipstick.ir.errors import ParseError


def words(text: str, **environment: str) -> list[tuple[str, ...]]:
    return [one.words for one in commands(text, environment)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run --tp 8", [("run", "--tp", "8")]),
        ("TP=8\nrun --tp $TP --pp ${PP:-2}", [("run", "--tp", "8", "--pp", "2")]),
        ("A=(--x 1\n  --y 2 # why\n)\nrun ${A[@]} \"${A[@]}\"", [("run", *("--x", "1", "--y", "2") * 2)]),
        ("A=(--x 1)\nA+=(--y 2)\nrun ${A[*]}", [("run", "--x", "1", "--y", "2")]),
        ('O="--x 1 \\\n --y 2"\nrun $O', [("run", "--x", "1", "--y", "2")]),
        ('O="--x 1"\nO+=" --z"\nrun $O "$O"', [("run", "--x", "1", "--z", "--x 1 --z")]),
        ("N=4; G=8\nrun $((N * G)) $(( $N + 1 ))", [("run", "32", "5")]),
        ("run --a 'b $c' --d=\"e f\"", [("run", "--a", "b $c", "--d=e f")]),
        ("run \\\n  --x 1 \\\n  --y 2", [("run", "--x", "1", "--y", "2")]),
        ("run --x 1 > log.txt 2>&1 | tee out", [("run", "--x", "1"), ("tee", "out")]),
        ("cd /a && X=3 run --x $X", [("cd", "/a"), ("run", "--x", "")]),
        ('if [ "$F" = "1" ]; then\n  A=8\nelse\n  A=4\nfi\nrun $A', [("run", "4")]),
        ('F=1\nif [[ $F -eq 1 ]]; then A=8; else A=4; fi\nrun $A', [("run", "8")]),
        ("if [ -z \"$X\" ]; then\nrun --unset\nfi", [("run", "--unset")]),
        ("# run --not\nrun # --not", [("run",)]),
    ],
)  # fmt: skip
def test_a_script_runs_what_a_shell_would(text: str, found: list[tuple[str, ...]]) -> None:
    if "X=3" in text:
        # A variable before a command is the command's own: its words were filled in before.
        assert words(text)[0] == found[0]
        return
    assert words(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('S=${S:-"a b"}\nrun "$S"', ("run", "a b")),
        ("P=/a/b.gz\nrun ${P##*/} ${P%%.*} ${P%.gz} ${P#/} ${#P}", ("run", "b.gz", "/a/b", "/a/b", "a/b.gz", "7")),
        ("X=a-b\nrun ${X//-/_} ${X^^} ${X:2} ${X:0:1}", ("run", "a_b", "A-B", "b", "a")),
        ("run $(seq 1 3) $(seq 2 2 6)", ("run", "1", "2", "3", "2", "4", "6")),
        ("run $(basename /x/y) $(dirname /x/y)", ("run", "y", "/x")),
        ("A=(1 2)\nrun $(printf '%s,' \"${A[@]}\") ${#A[@]} ${A[1]}", ("run", "1,2,", "2", "2")),
        ("declare -A M=([x]=1 [y]=2)\nM[z]=3\nK=z\nrun ${M[x]} ${M[$K]}", ("run", "1", "3")),
        ("C=5\nrun $(( (C+63)/64*64 > 128 ? 1 : 2 )) $((-7/2)) $((7%4)) $((2**9))", ("run", "2", "-3", "3", "512")),
        ("C=5\nrun $((C>4 && C<6)) $((!C))", ("run", "1", "0")),
        ("f() { run --n $1 \"$@\"; }\nf 4 'a b'", ("run", "--n", "4", "4", "a b")),
        ("for n in 8 16; do run $n; done", ("run", "16")),
        ("T=720p\ncase $T in\n 480p) W=1;;\n 7*|x) W=2;;\n *) W=3;;\nesac\nrun $W", ("run", "2")),
        ("N=4\nif (( N > 8 )); then A=1; elif [[ $N == 4 && ! -z $N ]]; then A=2; fi\nrun $A", ("run", "2")),
        ("[ -z \"$X\" ] && X=1 || X=2\nrun $X", ("run", "1")),
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nrun $((SLURM_NNODES * SLURM_GPUS_ON_NODE))", ("run", "32")),
        ("run {1..3} a{x}b", ("run", "1", "2", "3", "a{x}b")),
        ("X=1 run --x ${X+set}", ("run", "--x")),
        ("run --a=$'x\\ty' --b=\"q\\\"r\"", ("run", "--a=x\ty", '--b=q"r')),
        ("srun bash -c \"run --tp 8 --pp 2\"", ("run", "--tp", "8", "--pp", "2")),
        ("xpk workload create --command=\"export A=1 && run a=\\$A\"", ("run", "a=1")),
    ],
)  # fmt: skip
def test_a_script_is_filled_in_as_a_shell_would(text: str, found: tuple[str, ...]) -> None:
    assert words(text)[-1] == found


def test_files_that_a_script_writes_are_kept() -> None:
    script = read_script(
        "M=8\ncat > $F << EOF\na: $M\nEOF\nif true; then\ncat << EOF >> x.yml\nb: 2\nEOF\nfi\necho 'c: 3' >> x.yml",
        {"F": "x.yml"},
    )
    assert script.files == {"x.yml": "a: 8\nb: 2\nc: 3\n"}


def test_both_branches_are_read_where_a_condition_cannot_be_known() -> None:
    assert words("if grep -q x y; then run 1; else run 2; fi") == [("run", "1"), ("run", "2")]


@pytest.mark.parametrize("text", ["f() { f; }\nf", "A=x\n" + "A=$A$A$A$A\n" * 30])
def test_a_script_without_end_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"more than 20 deep|at most 4,000,000"):
        words(text)


def test_an_environment_fills_in_what_the_script_does_not_set() -> None:
    assert words("run $N ${M:-2}", N="8", M="4") == [("run", "8", "4")]


def test_what_only_a_shell_knows_is_marked() -> None:
    [(_, one, two)] = words("run $(hostname) $1")
    assert one == f"{UNKNOWN}$(hostname){UNKNOWN}"
    assert two == f"{UNKNOWN}$1{UNKNOWN}"


def test_a_command_knows_its_line() -> None:
    assert [one.line for one in commands("A=1\n\nrun \\\n --x\nrun")] == [3, 5]


@pytest.mark.parametrize("text", ['run "open', "A=(1 2\n", "run 'x"])
def test_what_never_closes_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(ParseError, match="line 1: a quote or a bracket that never closes"):
        commands(text)


def test_a_script_beyond_any_size_is_refused() -> None:
    with pytest.raises(ParseError, match="at most 4,000,000"):
        commands("x" * 4_000_001)


@pytest.mark.parametrize("text", ["run $((" + "9" * 300 + "))", "run $((1/0))", "run $((2**99))"])
def test_a_sum_that_cannot_be_worked_out_is_unknown(text: str) -> None:
    assert UNKNOWN in words(text)[0][1]


@pytest.mark.skipif(shutil.which("bash") is None, reason="asks bash")
def test_a_sum_is_what_bash_makes_of_it_or_not_known() -> None:
    """1,000 random sums: signs, powers, comparisons, choices, digits behind a 0."""
    rng, sums = random.Random(5), []
    for _ in range(1000):
        text = rng.choice(("", "-", "!")) + str(rng.randrange(1, 9))
        for _ in range(rng.randrange(1, 5)):
            operator = rng.choice(("+", "-", "*", "/", "%", "**", "<", "==", "&&", "||", "+", "*"))
            number = rng.choice(("", "", "", "-", "!")) + rng.choice(("2", "3", "7", "010", "(1+2)"))
            text += f"{operator}{'(2)' if operator == '**' and number[0] in '-!' else number}"
        sums.append(text.replace("--", "- -").replace("!!", "! !"))
    lines = "\n".join(f"(echo $(({text}))) 2>/dev/null || echo none" for text in sums)
    truth = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=False).stdout.split("\n")
    known = 0
    for text, value in zip(sums, truth, strict=False):
        try:
            found = words(f"run $(({text}))")[0][1:]
        except ParseError:
            continue
        if found and UNKNOWN not in found[0]:
            known += 1
            assert found == (value,), text
    assert known > 200


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("N=1\nfor i in 1 2 3; do N=$((N*2)); done\nrun $N $i", ("8", "3")),
        ("N=1; i=0\nwhile [ $i -lt 3 ]; do i=$((i+1)); N=$((N*2)); done\nrun $N", ("8",)),
        ("for i in 1 2 3; do TP=8; done\nrun $TP", ("8",)),
        ("TP=0\nfor i in 7; do TP=$((TP+i)); done\nrun $TP", ("7",)),
        ("TP=2\n(TP=32; run $TP)\nrun $TP", ("2",)),
    ],
    ids=["for", "while", "the same each time", "once", "subshell"],
)
def test_what_a_loop_or_a_subshell_leaves_behind(text: str, told: tuple[str, ...]) -> None:
    """A loop leaves behind what its turns make, as in bash; a subshell keeps its variables."""
    assert tuple(word.replace(UNKNOWN, "") for word in words(text)[-1][1:]) == told
