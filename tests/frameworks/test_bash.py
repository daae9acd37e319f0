"""Scripts beside bash itself: the words with which it calls `run`, in order."""

from __future__ import annotations

import random
import shutil
import subprocess
from contextlib import suppress

import pytest

from slipstick.frameworks.shell.marks import UNKNOWN
from slipstick.frameworks.shell.script import commands
from slipstick.ir.errors import ParseError

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="asks bash")

# Loops, functions, shells of their own and sums; each calls `run` with what came of it.
SCRIPTS = (
    "N=1; for i in 1 2 3; do N=$((N*2)); done; run $N $i",
    "for n in 8 16; do run $n; done",
    "N=; for i in 1 2 3 4; do [ $i = 2 ] && continue; if [ $i -eq 4 ]; then break; fi; N=$N$i; done; run $N x",
    "N=0; for i in 1 2; do for j in 1 2 3; do [ $j = 2 ] && continue 2; N=$((N+j)); done; done; run $N $i $j",
    "for i in 1 2 3; do for j in 1 2; do break 2; done; done; run $i $j",
    "i=0; T=1; while [ $i -lt 3 ]; do i=$((i+1)); T=$((T*2)); done; run $T $i",
    "i=0; until [[ $i -ge 5 ]]; do ((i+=2)); done; run $i",
    "i=0; while true; do ((i++)); if ((i>6)); then break; fi; done; run $i",
    "while false; do N=1; done; run ${N:-none}",
    "for ((i=0, k=1; i<4; i++)); do k=$((k*3)); done; run $i $k",
    "i=0; for ((;;)); do ((++i)); [ $i -eq 3 ] && break; done; run $i",
    "T=8; (T=32; run $T); run $T",
    "T=8; (exit 1); { T=9; }; run $T",
    "A=(1 2); (A+=(3)); run ${A[@]}",
    "declare -A M=([x]=1); (M[x]=2); run ${M[x]}",
    "T=2; T=3 | cat; echo 1 | while read x; do T=7; done; run $T",
    "f(){ local T=4; U=$1; run $T; }; T=2; f 8; run $T $U",
    "f(){ local T; T=4; }; T=2; f; run $T",
    "f(){ declare T=4; declare -a A=(1); typeset U=1; }; T=2; U=3; A=(7 8); f; run $T $U ${A[@]}",
    "f(){ T=5; g; run $T; }; g(){ local T=6; run $T; T=7; }; T=1; f; run $T",
    "g(){ return; T=1; }; T=8; g; run $T",
    "g(){ if [ $1 = a ]; then T=1; return 0; fi; T=2; }; g a; run $T; g b; run $T",
    "g(){ for i in 1 2 3; do T=$i; [ $i = 2 ] && return; done; T=9; }; g; run $T",
    "g(){ [ -n \"$1\" ] || return 1; T=3; }; T=0; g; run $T; g x; run $T",
    "T=8; unset T; run ${T-none}",
    "declare -i N=3+4; N+=1; N+=N*2; declare -ri M=0x10; run $N $M",
    "let 'T = 3 * 2' \"U = T ** 2\"; run $T $U",
    "readonly T=8 U\nT=4\nU=1\nrun $T ${U-none}",
    "A=(1 2); unset A; run ${A[@]} end",
    "N=3; ((N*=2)); let N+=1 N=N*2; run $N",
    "N=3; ((N==3)) && T=1 || T=2; ((N++)) && T=$((T+N)); run $T $N",
    "bash -c 'T=3; true'; T=${T:-4}; run $T; eval 'T=5; true'; run $T",
    "N=4; X='N + 1'; run $(( $X * 2 )) $((X=3, X**2)) $X",
    "if ((010 == 8)); then T=1; else T=2; fi; run $T $((08+1))x",
)  # fmt: skip
OPERATORS = ("+", "-", "*", "/", "%", "**", "<<", ">>", "<", "<=", "==", "!=", "&", "|", "^", "&&", "||")


def of_bash(script: str) -> list[list[str]]:
    """Return the words of each call of `run`, as bash makes them."""
    shown = "run() { printf '%s\\x1f' \"$@\"; printf '\\x1e'; }\n"
    # A sum that is none ends a shell.
    done = subprocess.run([str(BASH), "-c", shown + script], capture_output=True, text=True, timeout=60, check=False)
    return [line.split("\x1f")[:-1] for line in done.stdout.split("\x1e")[:-1]]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_calls_what_bash_calls(script: str) -> None:
    called = [list(one.words[1:]) for one in commands(script) if one.words[0] == "run"]
    expected = of_bash(script)
    assert [words for words in called if not any(UNKNOWN in word for word in words)] == expected[: len(called)]


def test_sums_are_those_of_bash() -> None:
    source = random.Random(7)

    def part(depth: int) -> str:
        if depth == 0 or source.random() < 0.25:
            return source.choice(("3", "010", "0x1f", "N", "$N", "E", "7", "1", "2#101", "0", "M++", "--M", "(M-=2)"))
        kind = source.random()
        if kind < 0.2:
            return f"{source.choice('-+!~')} {part(depth - 1)}"
        if kind < 0.3:
            return f"({part(depth - 1)})"
        if kind < 0.4:
            return f"({part(depth - 1)} ? {part(depth - 1)} : {part(depth - 1)})"
        return f"{part(depth - 1)}{source.choice(OPERATORS)}{part(depth - 1)}"

    sums = [part(4) for _ in range(400)]
    # Each in a shell of its own, which ends where bash finds no sum.
    written = [f"(N=012; M=5; E=; run $(({one})) $M)" for one in sums]
    expected = of_bash("".join(f"{one} 2>/dev/null || run none\n" for one in written))
    num_known = 0
    for script, words in zip(written, expected, strict=True):
        with suppress(ParseError):
            (call,) = commands(script)
            # What is passed over may be no sum to bash.
            if UNKNOWN not in call.words[1] and words != ["none"]:
                assert list(call.words[1:]) == words, script
                num_known += 1
    assert num_known > 200


@pytest.mark.parametrize(
    "script",
    [
        "while read -r x; do T=8; done; run $T",
        "T=1; while read -r x; do T=$((T*2)); done < f; run $T",
        "for f in *.sh; do T=$f; done; run $T",
        "for f in *.sh; do :; done; run $f",
        "for h in $HOSTS; do N=$((N+1)); done; run $N",
        "A=(1); while read -r x; do A+=($x); done; run ${A[@]}",
        "g(){ T=$((T+1)); }; T=0; until ping x; do g; done; run $T",
        "i=0; while true; do ((i++)); done; run $i",
        "select T in 1 2; do break; done; run $T",
        "for ((i=0; i<$N; i++)); do T=$i; done; run $T",
        "if ping x; then T=8; else T=2; fi; run $T",
        "T=1; if [ -f x ]; then T=8; fi; run $T",
        "T=1; [ -f x ] && T=8; run $T",
        "case $HOST in a*) T=4;; *) T=2;; esac; run $T",
        "run $((08))",
    ],
)
def test_what_only_a_shell_can_follow_is_not_known(script: str) -> None:
    assert UNKNOWN in "".join(next(one.words for one in reversed(commands(script)) if one.words[0] == "run"))
