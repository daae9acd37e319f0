"""Searches whose workers keep rows in shards: whoever is killed, nothing is lost and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.explore.block import Block, Found
from slipstick.explore.executors.processes import Processes
from slipstick.explore.job import InProcess, Job
from slipstick.explore.runs import ledger as ledgers
from slipstick.explore.runs.ledger import Ledger, shards_of
from slipstick.explore.runs.runs import LedgerFolder
from slipstick.explore.runs.shards import Shards
from slipstick.explore.runs.summary import Summary
from slipstick.explore.searching import Searched, search
from slipstick.ir.errors import UsageError

from ..kept_run import LONG, VERSION, AimedJob, read_all, run_of, table_of

ROOT = Path(__file__).resolve().parents[3]
JOB = AimedJob(num_candidates=400, at_once=10)


class Here:
    """Two workers of other processes, in this one; the first dies before it says that its third block is kept."""

    def __init__(self, deaths: int = 0) -> None:
        self.deaths = deaths

    def run(self, job: Job, blocks: Iterable[Block]) -> Iterator[Found]:
        workers = [job.open(), job.open()]
        for k, block in enumerate(blocks):
            found = workers[k % 2].work(block)
            if k == 4 and self.deaths:
                raise KeyboardInterrupt
            yield found


def whole(job: AimedJob) -> tuple[object, ...]:
    return table_of(InProcess().run(job, job.blocks()))


def sharded(path: Path, job: AimedJob = JOB, executor: Here | Processes | None = None) -> Searched:
    with Ledger.resume(path, job, VERSION) if path.exists() else Ledger.create(path, run_of(job)) as ledger:
        return search(job, executor or Here(), ledger, reduced=True)


def unfolded(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has too many rows for one file."""
    monkeypatch.setattr(ledgers, "_FOLDED_BYTES", 0)
    sharded(path)
    return path


def numbers(file: Path) -> set[int]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return {number for (number,) in db.execute("SELECT number FROM block")}


def test_what_few_workers_keep_becomes_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    done = sharded(path)
    assert read_all(path) == whole(JOB)
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]
    assert done.best.top["step_time_s"].tolist() == search(JOB).best.top["step_time_s"].tolist()


def test_shards_are_read_as_one_ledger_and_removed_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unfolded(tmp_path / "a.sqlite", monkeypatch)
    files = sorted(shards_of(path).glob("*.sqlite"))
    assert [len(numbers(file)) for file in files] == [20, 20]
    assert read_all(path) == whole(JOB)
    assert Summary.of(path).size_bytes >= path.stat().st_size + sum(file.stat().st_size for file in files)
    assert [read_all(file) == whole(JOB) for file in files] == [False, False]
    LedgerFolder(tmp_path).remove("a")
    assert list(tmp_path.iterdir()) == []


def test_more_shards_than_may_be_open_are_read_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "_OPEN", 1)
    assert read_all(unfolded(tmp_path / "a.sqlite", monkeypatch)) == whole(JOB)


def test_a_block_that_was_kept_and_not_told_of_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers.Ledger, "_fold", lambda ledger: None)
    path = tmp_path / "a.sqlite"
    with pytest.raises(KeyboardInterrupt):
        sharded(path, executor=Here(deaths=1))
    assert len(numbers(path)) == 4
    again = sharded(path)
    assert (again.ran.num_kept, again.ran.num_new, again.ran.num_damaged) == (5, 35, 0)
    assert read_all(path) == whole(JOB)


def test_a_shard_that_is_gone_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unfolded(tmp_path / "a.sqlite", monkeypatch)
    next(shards_of(path).glob("*.sqlite")).unlink()
    with Ledger.open(path) as ledger, pytest.raises(UsageError, match=r"block \d+ is not what was written"):
        list(ledger.kept())
    again = sharded(path)
    assert (again.ran.num_kept, again.ran.num_damaged) == (20, 20)
    assert read_all(path) == whole(JOB)


@pytest.mark.parametrize("name", ["../b.sqlite", "none.sqlite", "/etc/passwd", ""])
def test_a_ledger_reads_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.sqlite"
    sharded(path)
    (tmp_path / "b.sqlite").write_bytes(path.read_bytes())
    shards_of(path).mkdir()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE block SET data = ? WHERE number = 3", (name,))
    with Ledger.open(path) as ledger:
        assert ledger.done() == set(range(40)) - {3}


def test_a_machine_without_the_disk_sends_its_rows(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "a.sqlite", run_of(JOB)) as ledger:
        there = Shards.of(ledger)
        assert there.begin() is not None
        assert replace(there, token="other").begin() is None
        assert replace(there, folder=str(tmp_path / "elsewhere")).begin() is None


@pytest.mark.usefixtures("jobs_are_importable")
def test_a_worker_that_dies_costs_nothing(tmp_path: Path) -> None:
    job, path = AimedJob(num_candidates=200, at_once=2, killers=(123,)), tmp_path / "a.sqlite"
    done = sharded(path, job, Processes(2))
    assert done.tally.crashed == ["candidate 123 of part 0: killed by signal 9 (SIGKILL)"]
    # An odd number has no row of its own.
    assert read_all(path)[-1] == whole(replace(job, killers=()))[-1]


def test_killed_at_random_moments_it_goes_on_with_all_that_any_worker_kept(tmp_path: Path) -> None:
    path, moments = tmp_path / "a.sqlite", random.Random(3)
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.explore.kept_run", str(path), "2"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moments.uniform(0.0, 0.3))
        # Its workers end with it, each in the middle of what it does.
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        time.sleep(0.2)
    kept = set[int]().union(numbers(path), *map(numbers, shards_of(path).glob("*.sqlite")))
    quick = replace(LONG, pause_s=0.0)
    done = sharded(path, quick)
    assert 0 < done.ran.num_kept == len(kept) < 400
    assert read_all(path) == whole(quick)
    assert not shards_of(path).exists()
