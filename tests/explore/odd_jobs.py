"""Toy searches that do something else than to work on numbers, and whether two find the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slipstick.explore.block import Block, Found
from slipstick.explore.executors.messages import ONE_THREAD
from slipstick.explore.job import InProcess
from slipstick.ir.errors import UsageError

from .fake_job import FakeJob, FakeWorker


@dataclass(frozen=True)
class RefusedJob(FakeJob):
    """Cannot be opened: it names a model that is not there, or is simply broken."""

    is_broken: bool = False

    def open(self) -> FakeWorker:
        raise RuntimeError("no such file") if self.is_broken else UsageError("unknown model 'lama'")


@dataclass(frozen=True)
class StuckJob(FakeJob):
    """Finds what is in its first block, and then nothing for a minute; or never ends with one candidate."""

    stuck: int | None = None

    def open(self) -> FakeWorker:
        return _Stuck(self)


class _Stuck(FakeWorker):
    def work(self, block: Block) -> Found:
        assert isinstance(self.job, StuckJob)
        stuck = self.job.stuck
        is_stuck = block.number > 0 if stuck is None else block.first <= stuck < block.last
        time.sleep(60.0 if is_stuck else 0.0)
        return FakeWorker.work(self, block)


@dataclass(frozen=True)
class TellingJob(FakeJob):
    """Finds who works on it, and on which terms: process, threads that libraries may start, folder, interrupts."""

    folder: str = ""

    def open(self) -> FakeWorker:
        return _Telling(self)


class _Telling(FakeWorker):
    def work(self, block: Block) -> Found:
        assert isinstance(self.job, TellingJob)
        is_here = not self.job.folder or os.path.samefile(os.getcwd(), self.job.folder)
        threads = max(int(os.environ.get(name, "0")) for name in ONE_THREAD)
        is_deaf = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        told = {"process": os.getpid(), "threads": threads, "is_here": is_here, "is_deaf": is_deaf}
        found = FakeWorker.work(self, block)
        columns = {name: np.full(found.num_rows, value, dtype=np.float64) for name, value in told.items()}
        return replace(found, columns={**found.columns, **columns})


def same(found: Sequence[Found], job: FakeJob) -> bool:
    """Whether this is what one process finds, bit for bit, in any order."""
    return all(
        (one.number, dict(one.pruned), one.num_legal, one.crashed, list(one.columns))
        == (other.number, dict(other.pruned), other.num_legal, other.crashed, list(other.columns))
        and all(one.columns[name].tobytes() == other.columns[name].tobytes() for name in job.columns)
        for one, other in zip(sorted(found, key=lambda f: f.number), InProcess().run(job, job.blocks()), strict=True)
    )
