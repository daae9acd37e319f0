"""A real search as a program: started, killed, resumed, and what it kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SLIPSTICK = (sys.executable, "-m", "slipstick")
# Some hundred blocks in a few seconds; the model is a graph, so that no worker needs torch.
_WHAT = ("tiny.graph", "--system", "dgx-h100", "--gpus", "8", "--seq", "512", "--gbs", "32", "--vary", "zero=0,1,3")
_SHOWN = ("--top", "5", "-q", "--no-why")


@dataclass(frozen=True, slots=True)
class Row:
    """What was tried so many times, and how often something was lost or wrong."""

    what: str
    tried: int
    wrong: int
    how: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a search ended: its exit code, stdout, stderr, and how often `meanwhile` did something."""

    code: int
    out: str
    err: str
    times: int


def prepared(folder: Path) -> None:
    """Put the model there."""
    shutil.copy(ROOT / "tests/golden/tiny-llama.train.graph", folder / "tiny.graph")


def begun(runs: str) -> list[str]:
    """Return the words of a search that keeps its ledger in a folder."""
    return ["search", *_WHAT, *_SHOWN, "--runs", runs]


def resumed(runs: str) -> list[str]:
    """Return the words that go on with it."""
    return ["search", "--resume", "tiny-1", *_SHOWN, "--runs", runs]


def ran(folder: Path, words: Sequence[str], meanwhile: Callable[[int], bool] = lambda pid: False) -> Ended:
    """Run a command of slipstick; `meanwhile` is called with its process, again and again, and says if it did much."""
    env = {**os.environ, "SLIPSTICK_CACHE": str(folder / "cache"), "SLIPSTICK_RUNS": str(folder / "runs")}
    out, err, times = folder / "out.txt", folder / "err.txt", 0
    with out.open("w") as told, err.open("w") as said:
        process = subprocess.Popen([*_SLIPSTICK, *words], cwd=folder, env=env, stdout=told, stderr=said)
        while process.poll() is None:
            times += meanwhile(process.pid)
            time.sleep(0.02)
    return Ended(process.returncode, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"), times)


def exported(folder: Path, runs: str) -> str:
    """Return all rows that a ledger holds, as CSV."""
    return ran(folder, ["runs", "export", "tiny-1", "--runs", runs, "-o", "-"]).out


def children(pid: int) -> list[int]:
    """Return the processes below one; Linux says them."""
    found: list[int] = []
    try:
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except OSError:
        return found
    for child in map(int, told):
        found += [child, *children(child)]
    return found


def called(pid: int) -> str:
    """Return the command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
