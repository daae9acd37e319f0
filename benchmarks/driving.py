"""What the process that asks for a search has to do a block, with workers that are made up.

Blocks are real ones, worked on once; each time that one is handed out its metrics are moved by up to a thousandth, so
that no two blocks are alike. A made-up worker takes as long as the real one took, on a clock of its own; what it leaves
out, and how it packs what it sends, is done for real and not counted.
"""

from __future__ import annotations

import heapq
import resource
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import process_time
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

if TYPE_CHECKING:
    from slipstick.explore.block import Block, Found, Stored
    from slipstick.explore.executors.messages import Errand, Report
    from slipstick.explore.goals import Goal
    from slipstick.explore.job import Job, Worker
    from slipstick.explore.plans.job import PlanJob
    from slipstick.explore.runs.ledger import Ledger

# Workers that work on their errands one after another before the driver goes on: as on a machine of its own, it finds
# in its cache what it left there.
_BURST = 63
GPUS, BATCH, SEQ_LEN = 16_384, 2_048, 8_192


def job_of(model: str) -> PlanJob:
    """Return a search with few families and large blocks, as those of a space of a billion plans are."""
    from slipstick import GraphCache, load
    from slipstick.explore.goals import Goal
    from slipstick.explore.plans.degrees import Degrees
    from slipstick.explore.plans.job import PlanJob, PlanMachine
    from slipstick.explore.plans.space import Choices, PlanSpace
    from slipstick.ir.plan import Family

    degrees = Degrees(num_gpus=(GPUS,), global_batch=(BATCH,))
    choices = Choices(sp=(True,), zero=(1,), recompute=("full",), schedule=("1f1b",), cp=("ring",), etp=(True,))
    return PlanJob(
        graph=load(model, cache=GraphCache.default()),
        space=PlanSpace(degrees=degrees, choices=choices, seq_len=SEQ_LEN),
        machines=(PlanMachine(name="dgx-h100", bases=(Family(kernels="fused"),)),),
        goals=(Goal("step_time_s"), Goal("peak_mem_bytes")),
    )


@dataclass(frozen=True, slots=True)
class RepeatedJob:
    """So many blocks, each as one of a few that were worked on; `took_s` is what that took."""

    columns: Sequence[str]
    goals: Sequence[Goal]
    found: tuple[Found, ...]
    lengths: tuple[int, ...]
    num_blocks: int
    took_s: float
    digest: str = ""
    text: str = ""

    @classmethod
    def of(cls, job: PlanJob, num_blocks: int) -> RepeatedJob:
        """Work on the largest blocks of a job, twice: families are lowered the first time."""
        blocks = sorted(job.blocks(), key=len)[-4:]
        worker = job.open()
        found = tuple(map(worker.work, blocks))
        start = process_time()
        for block in blocks:
            worker.work(block)
        took_s = (process_time() - start) / len(blocks)
        return cls(job.columns, job.goals, found, tuple(map(len, blocks)), num_blocks, took_s)

    def blocks(self) -> Sequence[Block]:
        """Return the blocks, a thousand parts."""
        from slipstick.explore.block import Block

        return [Block(k, k % 1_000, 0, self.lengths[k % len(self.found)]) for k in range(self.num_blocks)]

    def open(self) -> RepeatedJob:
        """Work is done already."""
        return self

    def work(self, block: Block) -> Found:
        """Return one of the blocks, its metrics moved."""
        found = self.found[block.number % len(self.found)]
        moved = 1.0 + 1e-3 * np.random.default_rng(block.number).random(found.num_rows)
        metrics = {goal.name: found.columns[goal.name] * moved for goal in self.goals}
        return replace(found, number=block.number, columns={**found.columns, **metrics})


@dataclass
class MadeUpPool:
    """Workers on a clock of their own; `states` of them are real, and stand for all in turn."""

    job: Job
    took_s: float
    num_workers: int
    states: list[Worker]
    own_s: float = 0.0
    num_bytes: int = 0
    _num_spawned: int = 0
    _news: list[tuple[float, int]] = field(default_factory=list)
    _queues: dict[int, deque[Errand]] = field(default_factory=dict)
    _answers: dict[int, bytes] = field(default_factory=dict)
    _ready: list[int] = field(default_factory=list)
    _now_s: float = 0.0

    def now_s(self) -> float:
        """Return what the clock of the workers says."""
        return self._now_s

    def size(self) -> int:
        """Return how many there are."""
        return self.num_workers

    def spawn(self) -> int:
        """Start one; it is ready at once."""
        self._num_spawned += 1
        self._queues[self._num_spawned] = deque()
        self._ready.append(self._num_spawned)
        return self._num_spawned

    def give(self, number: int, errand: Errand) -> None:
        """Put an errand at the end of its queue."""
        queue = self._queues[number]
        queue.append(errand)
        if len(queue) == 1:
            self._begin(errand, number)

    def _begin(self, errand: Errand, number: int) -> None:
        heapq.heappush(self._news, (self._now_s + self.took_s * len(errand.pieces), number))

    def poll(self) -> Sequence[tuple[int, Report]]:
        """Let the clock go on to the next that is done."""
        import pickle

        from slipstick.explore.executors.messages import Ready, answered

        if self._ready:
            ready, self._ready = self._ready, []
            return [(number, Ready()) for number in ready]
        self._now_s, number = heapq.heappop(self._news)
        if number not in self._answers:
            start = process_time()
            for other in [number, *(one for _, one in heapq.nsmallest(_BURST, self._news))]:
                if other not in self._answers:
                    self._answers[other] = answered(self.states[other % len(self.states)], self._queues[other][0])
            self.own_s += process_time() - start
        packet = self._answers.pop(number)
        self._queues[number].popleft()
        self.num_bytes += len(packet)
        if self._queues[number]:
            self._begin(self._queues[number][0], number)
        reports: tuple[Report, ...] = pickle.loads(packet)  # noqa: S301 - packed above
        return [(number, report) for report in reports]

    def end(self, number: int) -> None:
        """Nobody is late."""
        raise AssertionError(f"worker {number} took too long on a clock that is made up")

    def shutdown(self) -> None:
        """End them all."""
        self._queues.clear()


@dataclass
class MadeUp:
    """An executor whose workers are made up; the last pool says what they took."""

    num_workers: int
    num_states: int
    took_s: float
    pool: MadeUpPool | None = None

    def run(self, job: Job, blocks: Iterable[Block]) -> Iterator[Found]:
        """Yield what is found in each block, through the dispatcher that all executors have."""
        from slipstick.explore.executors.retry import Pieces
        from slipstick.explore.executors.worker_pool import work_through
        from slipstick.explore.job import news_of

        start = process_time()
        states = [job.open() for _ in range(self.num_states)]
        self.pool = MadeUpPool(job, self.took_s, self.num_workers, states, process_time() - start)
        return work_through(self.pool, Pieces(blocks, job.columns), news=news_of(job), clock=self.pool.now_s)


@dataclass
class NoDisk:
    """A shard that is not written: what a worker packs and keeps does not pass the driver."""

    columns: Sequence[str]
    _heads: dict[int, tuple[int | str | bytes, ...]] = field(default_factory=dict)

    def write(self, found: Found) -> Stored:
        """Return what a shard says of a block like this one."""
        from slipstick.explore.block import Stored
        from slipstick.explore.runs.packed import packed

        if found.num_rows not in self._heads:
            head, _ = packed(found, self.columns)
            self._heads[found.num_rows] = (*head[1:], head.checksum())
        return Stored("made-up.sqlite", (found.number, *self._heads[found.num_rows]))


@contextmanager
def recorded(job: RepeatedJob) -> Iterator[Ledger]:
    """A ledger whose workers keep rows in shards that are not written."""
    from slipstick.explore.runs.ledger import Ledger
    from slipstick.explore.runs.run import SearchRun
    from slipstick.explore.runs.shards import Shards

    shard = NoDisk(job.columns)
    with (
        TemporaryDirectory() as folder,
        patch.object(Shards, "begin", lambda _: shard),
        Ledger.create(Path(folder, "made-up.sqlite"), SearchRun.of(job, "")) as ledger,
    ):
        yield ledger


def driving(model: str, num_workers: str, num_states: str, num_blocks: str, how: str) -> dict[str, list[float]]:
    """Time the driver a block, with rows nowhere (`reduced`) or in shards of workers (`shards`), and its memory."""
    from slipstick.explore.searching import search

    job = RepeatedJob.of(job_of(model), int(num_blocks))
    executor = MadeUp(int(num_workers), int(num_states), job.took_s)
    with recorded(job) if how == "shards" else nullcontext() as ledger:
        start = process_time()
        done = search(job, executor, ledger, reduced=True)
        assert executor.pool is not None
        took_s = process_time() - start - executor.pool.own_s
    return {
        "driver_s": [took_s / job.num_blocks],
        "block_s": [job.took_s],
        "block_plans": [mean(job.lengths)],
        "block_rows": [mean(found.num_rows for found in job.found)],
        "sent_bytes": [executor.pool.num_bytes / job.num_blocks],
        "front": [float(len(done.best.front["tp"]))],
        "peak_bytes": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0],
    }
