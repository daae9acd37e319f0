"""Drivers and workers that are killed by signal 9 at random moments: the rows are those of a search that was not."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from .search import Row, begun, called, children, exported, prepared, ran, resumed

# How long a search may run before it is killed; a whole one takes some seconds of CPU.
_UNTIL_S = (0.2, 8.0)
# Blocks between two kills of workers, of some three hundred.
_BLOCKS = (10.0, 60.0)


def of_drivers(folder: Path, kills: int, draw: random.Random) -> Row:
    """Kill the process of a search and resume it, until it was killed so often; each search goes on to its end."""
    prepared(folder)
    whole = ran(folder, begun("whole")).out, exported(folder, "whole")
    killed = wrong = searches = 0
    while killed < kills:
        searches += 1
        runs, here = f"driver{searches}", 0
        while True:
            has_begun = any((folder / runs).glob("*.sqlite"))
            words = resumed(runs) if has_begun else begun(runs)
            found = ran(folder, words, killer(draw, kills > killed and here < 10))
            killed, here = killed + found.times, here + found.times
            if found.code != -signal.SIGKILL:
                break
        same = _rows(found.out) == _rows(whole[0]) and exported(folder, runs) == whole[1]
        wrong += found.code != 0 or not same
    told = f"{searches} searches killed and resumed to their end; rows and table byte by byte those of one that was not"
    return Row("kill -9 of a search", killed, wrong, told)


def of_workers(folder: Path, kills: int, draw: random.Random) -> Row:
    """Kill worker processes of searches until there were so many."""
    prepared(folder)
    ran(folder, begun("workers"))
    whole = exported(folder, "workers")
    killed = wrong = searches = 0
    while killed < kills:
        searches += 1
        runs = f"worker{searches}"
        left = kills - killed
        hunting = hunter(draw, left, folder / runs / "tiny-1.sqlite")
        found = ran(folder, [*begun(runs), "--executor", "processes", "--jobs", "2"], hunting)
        killed += found.times
        wrong += found.code != 0 or exported(folder, runs) != whole
    told = f"{searches} searches on two worker processes; each went on by itself to the same rows"
    return Row("kill -9 of a worker", killed, wrong, told)


def killer(draw: random.Random, armed: bool) -> Callable[[int], bool]:
    """Return what kills a process once, at a random moment."""
    end = time.monotonic() + draw.uniform(*_UNTIL_S)
    moments: Iterator[float] = iter([end] if armed else [])
    at = next(moments, float("inf"))

    def kill(pid: int) -> bool:
        nonlocal at
        if time.monotonic() < at:
            return False
        at = float("inf")
        os.kill(pid, signal.SIGKILL)
        return True

    return kill


def hunter(draw: random.Random, most: int, ledger: Path) -> Callable[[int], bool]:
    """Return what kills workers of a process, one after another, each some random number of blocks after the last.

    Workers that are killed while they start, three in a row, end a search: something is wrong with all of them.
    """
    at, left = draw.uniform(*_BLOCKS), most

    def kill(pid: int) -> bool:
        nonlocal at, left
        if not left or num_blocks(ledger) < at:
            return False
        workers = [child for child in children(pid) if "spawn_main" in called(child)]
        if not workers:
            return False
        at, left = num_blocks(ledger) + draw.uniform(*_BLOCKS), left - 1
        with suppress(OSError):
            os.kill(draw.choice(workers), signal.SIGKILL)
        return True

    return kill


def num_blocks(ledger: Path) -> int:
    """Return how many blocks a ledger holds, that another process may be writing."""
    try:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=5)) as db:
            return int(db.execute("SELECT count(*) FROM block").fetchone()[0])
    except sqlite3.Error:
        return 0


def _rows(text: str) -> list[str]:
    """The table without the line that names the run."""
    return [line for line in text.splitlines() if not line.startswith("run ")]
