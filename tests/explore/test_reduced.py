"""Workers that leave rows out: the search finds the same to the last bit, whoever works on which block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from slipstick.explore.block import Block, Found, cut
from slipstick.explore.executors.processes import Processes
from slipstick.explore.goals import Goal
from slipstick.explore.job import Job
from slipstick.explore.reduced import ReducedJob
from slipstick.explore.searching import Searched, search

NUM, AT_ONCE = 30_000, 700
COLUMNS = ("tp", "pp", "step_time_s", "peak_mem_bytes")


@dataclass(frozen=True, slots=True)
class RandomPlans:
    """Rows of random numbers with ties, drawn for each candidate."""

    goals: tuple[Goal, ...] = (Goal("step_time_s"), Goal("peak_mem_bytes"))
    digest: str = ""
    text: str = ""
    columns: tuple[str, ...] = COLUMNS

    def blocks(self) -> list[Block]:
        return list(cut(0, NUM, AT_ONCE, 0))

    def open(self) -> RandomPlans:
        return self

    def work(self, block: Block) -> Found:
        rng = np.random.default_rng(0)
        numbers = rng.integers(1, 5, (2, NUM)).astype(np.float64)
        metrics = rng.integers(100, 4_000, (2, NUM)).astype(np.float64)
        columns = {
            name: column[block.first : block.last] for name, column in zip(COLUMNS, (*numbers, *metrics), strict=True)
        }
        kept = columns["step_time_s"] % 3 != 0
        pruned = {"by three": int((~kept).sum())}
        return Found(block.number, pruned, len(block), {name: column[kept] for name, column in columns.items()})


@dataclass
class Dealt:
    """So many workers in this process, blocks dealt to them at random and given back in any order."""

    num_workers: int
    num_rows: int = 0

    def run(self, job: Job, blocks: Iterable[Block]) -> Iterator[Found]:
        rng, workers = Random(self.num_workers), [job.open() for _ in range(self.num_workers)]
        for block in rng.sample(list(blocks), k=len(list(blocks))):
            found = rng.choice(workers).work(block)
            self.num_rows += found.num_rows
            yield found


def told(done: Searched) -> dict[str, object]:
    assert done.kinds is not None
    parts = {"top": done.best.top, "front": done.best.front, "cloud": done.best.cloud, "kinds": done.kinds.rows}
    rows = {f"{part}.{name}": column.tolist() for part, some in parts.items() for name, column in some.items()}
    return {**rows, "tally": done.tally}


@pytest.mark.parametrize("num_workers", [1, 3])
def test_the_search_finds_the_same_and_gets_fewer_rows(num_workers: int) -> None:
    whole, fewer = Dealt(num_workers), Dealt(num_workers)
    assert told(search(RandomPlans(), fewer, reduced=True)) == told(search(RandomPlans(), whole))
    assert whole.num_rows == pytest.approx(NUM * 2 / 3, rel=0.01)
    # The sample has 4,000 of n rows: of the k-th row a worker sends 4,000 / k, so about 4,000 (1 + ln(n / 4,000)).
    each = whole.num_rows / num_workers
    assert fewer.num_rows < 1.2 * num_workers * 4_000 * (1 + np.log(max(each / 4_000, 1.0)))


def test_a_block_that_comes_again_and_a_piece_of_one_are_sent_whole() -> None:
    job = RandomPlans()
    worker, (first, second, *_) = ReducedJob(job, job.goals, 20).open(), job.blocks()
    worker.work(first)
    assert worker.work(first).left_out == 0
    piece = second.halves()[0]
    assert worker.work(piece).num_rows == job.work(piece).num_rows


@pytest.mark.usefixtures("jobs_are_importable")
def test_processes_of_this_machine_do_so() -> None:
    assert told(search(RandomPlans(), Processes(2), reduced=True)) == told(search(RandomPlans()))
