"""Workers that send the rows alone that may still count: the best, the front, the kinds, and a sample of the rest.

What a worker has sent before is beaten by few of its next rows, so that the process that asked gets fewer and fewer,
and finds the same to the last bit: a row that is not among the first, the front, the kinds or the sample of one
worker's rows is not among those of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ir.records import dataclass
from .best import BLOCK, ROW, Best, placed
from .block import Block, Found
from .goals import Goal
from .job import Job, Worker
from .kinds import Kinds


@dataclass(frozen=True, slots=True)
class ReducedJob:
    """A job whose workers leave out rows that cannot count; of a ledger it is the job itself.

    Attributes:
        job: what is searched.
        goals: the first sorts; the next break ties.
        most: best rows that are asked for.
    """

    job: Job
    goals: Sequence[Goal]
    most: int

    @property
    def digest(self) -> str:
        """What tells the search from any other."""
        return self.job.digest

    @property
    def text(self) -> str:
        """The space as YAML."""
        return self.job.text

    @property
    def columns(self) -> Sequence[str]:
        """The names of all columns."""
        return self.job.columns

    def blocks(self) -> Sequence[Block]:
        """Return the blocks of the job."""
        return self.job.blocks()

    def open(self) -> Worker:
        """Open the job; nothing was sent yet."""
        job = self.job
        return ReducingWorker(job.open(), self)


class ReducingWorker:
    """Works on blocks as another worker does, and keeps what of their rows may count."""

    def __init__(self, worker: Worker, of: ReducedJob) -> None:
        """Keep nothing yet; pieces of blocks, which have no places of their own, are sent whole."""
        self._worker = worker
        self._best, self._kinds = Best(of.goals, of.most), Kinds(of.goals[0])
        self._left = {block.number: len(block) for block in of.job.blocks()}

    def work(self, block: Block) -> Found:
        """Return what is found in a block, less the rows of a whole one that others of this worker leave behind."""
        found = self._worker.work(block)
        # A block that comes again is sent whole: its rows may not count twice among those sent.
        if self._left.pop(block.number, None) != len(block) or not found.num_rows:
            return found
        rows = placed([found])
        self._best.take_rows(rows)
        self._kinds.take_rows(rows)
        kept = (self._best.top, self._best.front, self._best.cloud, self._kinds.rows)
        own = [some[ROW][some[BLOCK] == block.number] for some in kept if some]
        places = np.unique(np.concatenate(own))
        which = places.astype(np.intp)
        columns = {name: column[which] for name, column in found.columns.items()}
        return replace(found, columns=columns, places=places, left_out=found.num_rows - len(which))
