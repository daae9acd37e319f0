"""What a worker says of itself and of its pieces, without a process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import MappingProxyType

import pytest

from slipstick.explore.block import Block, Found
from slipstick.explore.executors.messages import (
    Done,
    Errand,
    Failed,
    Ready,
    RefusedPiece,
    Report,
    in_words,
    opened,
    packed,
    worked,
)
from slipstick.explore.executors.ray_worker import RayWorker, versions
from slipstick.ir.errors import InternalError, NotUnderstoodError, UsageError

from ..fake_job import FakeJob, FakeWorker
from ..odd_jobs import RefusedJob


class Raising:
    """A worker that knows only one thing to do."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def work(self, block: Block) -> Found:
        raise self.error


class TwoWordsError(Exception):
    """Cannot be read where it is sent: it is made of two words and known by one."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


def unpacked(report: Report) -> Report:
    (read,) = pickle.loads(packed(report))
    assert isinstance(read, Report)
    return read


def test_a_job_that_opens_gives_its_worker() -> None:
    assert opened(FakeJob) == FakeWorker(FakeJob())


def test_an_error_for_people_is_not_explained_by_code() -> None:
    refused = opened(RefusedJob)
    assert isinstance(refused, RefusedPiece)
    assert isinstance(refused.error, UsageError)
    assert not hasattr(refused.error, "__notes__")


def test_any_other_error_says_where_it_was_raised_on_its_way_too() -> None:
    refused = opened(lambda: RefusedJob(is_broken=True))
    assert isinstance(refused, RefusedPiece)
    read = unpacked(refused)
    assert isinstance(read, RefusedPiece)
    assert str(read.error) == "no such file"
    assert "odd_jobs.py" in read.error.__notes__[0]


def test_a_piece_is_done() -> None:
    (block,) = FakeJob(num_candidates=4).blocks()
    done = worked(FakeWorker(FakeJob()), block)
    assert isinstance(done, Done)
    assert done.found.columns["number"].tolist() == [0.0, 2.0]


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), InternalError("by zero"), MemoryError("by zero")])
def test_what_may_be_the_fault_of_a_candidate_is_told(error: Exception) -> None:
    failed = worked(Raising(error), Block(0, 0, 0, 1))
    assert isinstance(failed, Failed)
    assert failed.why.startswith(f"{type(error).__name__}: by zero (test_messages.py, line ")


@pytest.mark.parametrize("error", [UsageError("no such chip"), NotUnderstoodError("no rule for this operator")])
def test_what_people_must_hear_is_refused(error: Exception) -> None:
    assert worked(Raising(error), Block(0, 0, 0, 1)) == RefusedPiece(error)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (RefusedPiece(TwoWordsError("no", "luck")), "a worker failed: TwoWordsError: no luck"),
        (Done(Found(0, MappingProxyType({}), 0, {})), "a worker failed: TypeError: cannot pickle 'mappingproxy'"),
    ],
)
def test_what_cannot_be_sent_is_told_in_words(report: Report, words: str) -> None:
    read = unpacked(report)
    assert isinstance(read, RefusedPiece)
    assert isinstance(read.error, InternalError)
    assert str(read.error).startswith(words)


def test_an_actor_is_a_worker_by_bytes() -> None:
    actor, job = RayWorker(), FakeJob(num_candidates=4)
    assert pickle.loads(actor.open(versions(), pickle.dumps(job), ".")) == (Ready(),)
    (done,) = pickle.loads(actor.work(pickle.dumps(Errand(job.blocks()))))
    assert isinstance(done, Done)
    assert done.found.columns["number"].tolist() == [0.0, 2.0]


def test_an_actor_of_another_version_reads_nothing() -> None:
    (refused,) = pickle.loads(RayWorker().open("slipstick 0.0.9+0123456789ab with numpy 2.0.0", b"no pickle", "."))
    assert isinstance(refused, RefusedPiece)
    assert isinstance(refused.error, UsageError)
    assert f"has {versions()}, this machine slipstick 0.0.9+0123456789ab" in str(refused.error)


def test_an_actor_that_cannot_open_says_why() -> None:
    (refused,) = pickle.loads(RayWorker().open(versions(), pickle.dumps(RefusedJob()), "."))
    assert isinstance(refused, RefusedPiece)
    assert str(refused.error) == "unknown model 'lama'"


def test_an_error_takes_one_line_and_not_a_long_one() -> None:
    assert in_words(ValueError("first\n  second")) == "ValueError: first second"
    assert len(in_words(ValueError("x" * 1000))) == 300


def test_a_worker_loads_no_numbers_before_it_has_set_its_threads() -> None:
    code = "import sys, slipstick.explore.executors.process_worker as _; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
