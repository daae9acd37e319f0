"""Searches in processes: the same bits, whoever dies; and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest

from slipstick.explore.block import Found
from slipstick.explore.executors import worker_pool
from slipstick.explore.executors.processes import Processes
from slipstick.ir.errors import UsageError

from ..fake_job import FakeJob
from ..odd_jobs import RefusedJob, StuckJob, TellingJob, same

pytestmark = pytest.mark.usefixtures("jobs_are_importable")

# Prints its workers once both are at work, and never comes to an end by itself.
# A parent of this test may ignore interrupts (`nohup make test &`), which its children would inherit.
SCRIPT = """
import signal
from multiprocessing import active_children
from slipstick.explore.executors.processes import Processes
from tests.explore.fake_job import FakeJob
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    job = FakeJob(num_candidates=100_000, pause_s=0.01)
    for number, found in enumerate(Processes(2).run(job, job.blocks())):
        if number in (0, 20):
            print(*(child.pid for child in active_children()), flush=True)
"""


def is_running(pid: int) -> bool:
    """Whether a process is there and not only waiting for somebody to ask how it ended."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pids: Sequence[int], within_s: float = 60.0) -> bool:
    """Whether all processes end in time."""
    until = time.monotonic() + within_s
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(is_running, pids))


def test_processes_find_what_one_finds_though_one_is_killed() -> None:
    job = FakeJob(num_candidates=160, pause_s=0.01)
    before, found = {child.pid for child in active_children()}, list[Found]()
    with closing(Processes(2).run(job, job.blocks())) as run:
        assert {child.pid for child in active_children()} == before
        for number, one in enumerate(run):
            found.append(one)
            if number == 10:
                victim = next(child for child in active_children() if child.pid not in before)
                assert victim.pid is not None
                os.kill(victim.pid, signal.SIGKILL)
    assert same(found, job)
    assert {child.pid for child in active_children()} == before


def test_candidates_that_kill_or_fail_are_told_and_all_others_are_found() -> None:
    job = FakeJob(num_candidates=40, at_once=2, killers=(13,), failures=(30, 31))
    found = sorted(Processes(2).run(job, job.blocks()), key=lambda f: f.number)
    told = [line.split(" (")[0] for f in found for line in f.crashed]
    assert told == [
        "candidate 13 of part 0: killed by signal 9",
        "candidate 30 of part 0: ZeroDivisionError: candidate 30",
        "candidate 31 of part 0: ZeroDivisionError: candidate 31",
    ]
    rows = [n for n in range(0, 40, 2) if n != 30]
    assert np.concatenate([f.columns["number"] for f in found]).tolist() == rows
    assert [f.num_candidates for f in found] == [2] * 20


def test_a_candidate_that_never_ends_is_told_and_all_others_are_found() -> None:
    job = StuckJob(num_candidates=24, at_once=8, stuck=11)
    found = sorted(Processes(2, limit_s=1.0).run(job, job.blocks()), key=lambda f: f.number)
    assert [line for f in found for line in f.crashed] == ["candidate 11 of part 0: no answer in 1 s"]
    assert np.concatenate([f.columns["number"] for f in found]).tolist() == list(range(0, 24, 2))
    assert [f.num_candidates for f in found] == [8, 8, 8]


def test_time_in_which_the_driver_is_held_up_is_not_a_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_LONGEST_LOOK_S", 0.01)
    job, found = FakeJob(num_candidates=24, pause_s=0.2), list[Found]()
    for one in Processes(2, limit_s=0.35).run(job, job.blocks()):
        found.append(one)
        time.sleep(0.5)
    assert same(found, job)


def test_an_error_for_people_is_raised_as_it_is() -> None:
    job = RefusedJob()
    with pytest.raises(UsageError, match=r"^unknown model 'lama'$"):
        list(Processes(1).run(job, job.blocks()))


def test_workers_have_one_thread_the_folder_of_the_caller_and_no_ear_for_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = TellingJob(folder=str(tmp_path))
    found = list(Processes(2).run(job, job.blocks()))
    columns = {name: np.concatenate([f.columns[name] for f in found]) for name in found[0].columns}
    assert set(columns["threads"]) == set(columns["is_here"]) == set(columns["is_deaf"]) == {1.0}
    assert float(os.getpid()) not in columns["process"]


def test_closing_ends_workers_in_the_middle_of_what_they_do() -> None:
    job = StuckJob()
    run = Processes(2).run(job, job.blocks())
    next(run)
    pids, start = [child.pid or 0 for child in active_children()], time.monotonic()
    run.close()
    assert time.monotonic() - start < 2.0
    assert len(pids) == 2
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_workers_end_with_their_parent(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        pids = [int(pid) for pid in [parent.stdout.readline(), parent.stdout.readline()][1].split()]
        # To all of them, as a terminal does.
        os.killpg(parent.pid, number) if number == signal.SIGINT else os.kill(parent.pid, number)
        parent.wait(60.0)
        assert len(pids) == 2
        assert ends(pids)
        assert parent.stderr.read().count("Traceback") == (number == signal.SIGINT)


@pytest.mark.parametrize("num_workers", [0, -3])
def test_fewer_workers_than_one_are_refused(num_workers: int) -> None:
    with pytest.raises(UsageError, match=f"{num_workers} workers can do nothing"):
        Processes(num_workers)
