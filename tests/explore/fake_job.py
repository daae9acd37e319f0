"""A toy search: each candidate is a number, odd ones are pruned, and those on a list do harm to their worker."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstick.explore.block import Block, Found, cut


@dataclass(frozen=True, slots=True)
class FakeJob:
    """So many numbers, so many a block.

    `killers` kill the process that works on them, `failures` raise, and each block takes `pause_s` seconds.
    """

    num_candidates: int = 20
    at_once: int = 4
    killers: tuple[int, ...] = ()
    failures: tuple[int, ...] = ()
    pause_s: float = 0.0

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def text(self) -> str:
        return f"num_candidates: {self.num_candidates}\nat_once: {self.at_once}\n"

    @property
    def columns(self) -> Sequence[str]:
        return ("number", "step_time_s")

    def blocks(self) -> Sequence[Block]:
        return list(cut(0, self.num_candidates, self.at_once, 0))

    def open(self) -> FakeWorker:
        return FakeWorker(self)


@dataclass(frozen=True, slots=True)
class FakeWorker:
    job: FakeJob

    def work(self, block: Block) -> Found:
        mine = range(block.first, block.last)
        if any(number in mine for number in self.job.killers):
            os.kill(os.getpid(), signal.SIGKILL)
        broken = [number for number in self.job.failures if number in mine]
        if broken:
            raise ZeroDivisionError(f"candidate {broken[0]}")
        time.sleep(self.job.pause_s)
        even = np.array([number for number in mine if number % 2 == 0], dtype=np.float64)
        columns = {"number": even, "step_time_s": 1.0 / (even + 1.0)}
        return Found(block.number, {"odd": len(mine) - len(even)}, len(mine), columns)
