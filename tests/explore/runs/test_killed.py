"""A search whose process is stopped, however and whenever, goes on to the same table."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.explore.job import InProcess
from slipstick.explore.runs.ledger import Ledger, lock_of
from slipstick.explore.runs.lock import holder
from slipstick.ir.errors import UsageError

from ..kept_run import LONG, VERSION, read_all, resumed, table_of

ROOT = Path(__file__).resolve().parents[3]
# The same search without its waits.
QUICK = replace(LONG, pause_s=0.0)
NUM_BLOCKS = len(LONG.blocks())


@contextmanager
def _searching(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that begins the search, or goes on with it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.explore.kept_run", str(path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _first_block(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _whole() -> tuple[object, ...]:
    return table_of(InProcess().run(QUICK, QUICK.blocks()))


def test_killed_at_ten_random_moments_the_table_is_that_of_a_search_that_was_not(tmp_path: Path) -> None:
    path, moments, num_done = tmp_path / "a.sqlite", random.Random(9), [0]
    for kill in range(10):
        with _searching(path) as process:
            # Every third at any moment of its start, when it loads, makes the ledger or reads it.
            if kill % 3 or not path.exists():
                assert _first_block(process) == "0\n"
                time.sleep(moments.uniform(0, 0.1))
            else:
                time.sleep(moments.uniform(0, 0.3))
        assert process.returncode == -signal.SIGKILL
        with Ledger.open(path) as ledger:
            num_done.append(ledger.num_done())
            assert ledger.done() == set(range(num_done[-1]))
    assert num_done == sorted(num_done)
    assert 0 < num_done[1] < num_done[-1] < NUM_BLOCKS
    ran, shown = resumed(path, QUICK)
    assert (ran.num_kept, ran.num_damaged, ran.num_new) == (num_done[-1], 0, NUM_BLOCKS - num_done[-1])
    assert shown == read_all(path) == _whole()


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with _searching(path) as process:
        _first_block(process)
        time.sleep(0.03)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130
    with Ledger.open(path) as ledger:
        num_done = ledger.num_done()
    assert told == (
        f"interrupted: {num_done} of {NUM_BLOCKS} blocks are kept; resume with `slipstick search --resume {path}`\n"
    )
    assert holder(lock_of(path)) is None
    assert resumed(path, QUICK)[1] == _whole()


def test_two_processes_cannot_do_one_run(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with _searching(path) as process:
        _first_block(process)
        with pytest.raises(UsageError, match=f"run 'a' is being run by process {process.pid}: wait for it, or stop"):
            Ledger.resume(path, LONG, VERSION)
        assert holder(lock_of(path)) == f"process {process.pid}"
        with Ledger.open(path) as ledger:
            assert ledger.done() >= {0}
    assert holder(lock_of(path)) is None
    assert resumed(path, QUICK)[1] == _whole()
