"""Attacks that once did harm, made anew: each must end at once, in words, with exit code 2 or 4."""

from __future__ import annotations

import gzip
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .search import ROOT, Row

_STEP = ("estimate", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "8", "--seq", "512", "--gbs", "16")
_SERVED = ("estimate", "llama-3.1-8b", "--phase", "serve", "--system", "dgx-h100", "--gpus", "1", "--engine", "vllm")
_AT_MOST_S, _AT_MOST_BYTES, _REFUSED = 20.0, 2 << 30, (2, 4)
_ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghijk", "bcdefghijkl", strict=True)
)


@dataclass(frozen=True)
class Attack:
    """A file, if one is needed, the words that have it read, and what they did before."""

    what: str
    words: Sequence[str]
    before: str
    file: str = ""
    data: Callable[[], bytes] = bytes


def _graph() -> str:
    return (ROOT / "tests/golden/tiny-llama.train.graph").read_text(encoding="utf-8")


def _packed_zeros() -> bytes:
    return gzip.compress(_graph().encode() + b"#" * (4 << 30), compresslevel=1)


def _repeated() -> bytes:
    return _graph().replace("block0 x2", "block0 x1000000000000").encode()


def _of_yaml(flag: str) -> Attack:
    return Attack(f"12 lines of YAML aliases as {flag}", (*_STEP, flag, "bad.yaml"), "> 5 GB", "bad.yaml",
                  _ALIASES.encode)  # fmt: skip


def _of_system(what: str, text: str) -> Attack:
    words = ("estimate", "llama-3.1-8b", "--system", "bad.yaml", "--gpus", "8")
    return Attack(f"{what} in a system file", words, "exit code 1", "bad.yaml", text.encode)


ATTACKS = (
    *map(_of_yaml, ("--system", "--stack", "--prices", "--calibration")),
    Attack("12 lines of YAML aliases as --engine", (*_SERVED, "--engine", "bad.yaml"), "> 5 GB", "bad.yaml",
           _ALIASES.encode),
    Attack("a region repeated 10^12 times", ("estimate", "bad.graph", *_STEP[2:]), "> 5 GB", "bad.graph", _repeated),
    Attack("a packed graph of 4 GiB", ("estimate", "bad.graph.gz", *_STEP[2:]), "8.9 GB", "bad.graph.gz",
           _packed_zeros),
    _of_system("a whole number of 5,000 digits", "name: x\nnode_size: " + "9" * 5000 + "\n"),
    _of_system("20,000 nested lists", "name: " + "[" * 20_000 + "]" * 20_000 + "\n"),
    _of_system("the date 2020-13-45", "name: 2020-13-45\n"),
    Attack("--prefix-hit nan", (*_SERVED, "--prefix-hit", "nan"), "an answer"),
    Attack("a seed of -1", (*_SERVED, "--isl", "64", "--osl", "64", "--serve", "poisson:1,seed=-1"), "exit code 1"),
    Attack("10^9 requests", (*_SERVED, "--isl", "64", "--osl", "64", "--serve", "poisson:1,n=1000000000"), "7.6 GB"),
    Attack("a length of 400 digits", (*_STEP, "--seq", "9" * 400), "exit code 1"),
    Attack("a length above 2^63", (*_STEP, "--seq", str(2**64)), "exit code 1"),
    Attack("a CSV without `dataset`", ("validate", "bad.csv"), "exit code 1", "bad.csv", lambda: b"a,b\n1,2\n"),
)  # fmt: skip


def of_attacks(folder: Path, number: int, draw: random.Random) -> Sequence[Row]:
    """Make the first so many attacks, a process each."""
    del draw
    (folder / "cache").mkdir()
    return [_tried(folder, attack) for attack in ATTACKS[:number]]


def _tried(folder: Path, attack: Attack) -> Row:
    if attack.file:
        (folder / attack.file).write_bytes(attack.data())
    env: Mapping[str, str] = {**os.environ, "SLIPSTICK_CACHE": str(folder / "cache")}
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "slipstick", *attack.words], cwd=folder, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=_bounded,
    )  # fmt: skip
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds, held = time.monotonic() - start, used.ru_maxrss << 10
    code = process.returncode = os.waitstatus_to_exitcode(status)
    is_well = code in _REFUSED and "Traceback" not in said and seconds < _AT_MOST_S and held < _AT_MOST_BYTES
    if is_well:
        return Row(attack.what, 1, 0, f"exit code {code}, below {_AT_MOST_S:.0f} s and 2 GB; before: {attack.before}")
    return Row(attack.what, 1, 1, f"exit code {code} after {seconds:.0f} s with {held / 1e9:.1f} GB: {said[-200:]!r}")


def _bounded() -> None:
    """Let an attack that works fail by memory, before it takes the machine's."""
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
