"""Workers that send the rows alone that may still count: the best, the front, the kinds, and a sample of the rest.

A row that is behind what the process that asked knows already, or what its worker has sent before, is behind all rows
in the end: leaving it out changes nothing to the last bit. So workers hear what is known, and of a block send a few
rows, however many workers there are.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from ..ir.records import dataclass
from .best import BLOCK, ROW, Best, Columns, placed
from .block import Block, Found
from .goals import Goal
from .job import Job, News, Worker
from .kinds import KIND, Kinds
from .runs.shards import Shards

# Rows of a front that workers hear of: others stand between these.
_FEW = 256
# News of the sample alone are worth their way when it has room for so much less.
_LESS = 0.8


@dataclass(slots=True)
class Board:
    """The latest news of a search, and what they say."""

    news: News = field(default_factory=News)
    top: Columns | None = None
    front: Columns | None = None
    room: int = 2**64


@dataclass(frozen=True, slots=True)
class ReducedJob:
    """A job whose workers leave out rows that cannot count.

    Attributes:
        job: what is searched.
        goals: the first sorts; the next break ties.
        most: best rows that are asked for.
        shards: where workers keep all rows; None where nobody wants them.
        board: where workers' news stand.
    """

    job: Job
    goals: Sequence[Goal]
    most: int
    shards: Shards | None = None
    board: Board = field(default_factory=Board)

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

    def news(self) -> News:
        """Return the latest news."""
        return self.board.news

    def hear(self, news: News) -> None:
        """Take the latest news, in another process than that of the search."""
        self.board.news = news

    def tell(self, best: Best, kinds: Kinds) -> None:
        """Have workers hear what is known by now, where it is more than they know."""
        board = self.board
        if best.top is board.top and best.front is board.front and best.room >= _LESS * board.room:
            return
        which = np.unique(np.linspace(0, len(best.front[ROW]) - 1, _FEW).astype(np.intp))
        front = {name: column[which] for name, column in self.compared(best.front).items()}
        known = (self.compared(best.top), front, best.room, self.compared(kinds.rows))
        board.news = News(board.news.number + 1, pickle.dumps(known))
        board.top, board.front, board.room = best.top, best.front, best.room

    def compared(self, rows: Columns) -> Columns:
        """Return the columns by which rows are compared, and their places."""
        names = dict.fromkeys((*KIND, *(goal.name for goal in self.goals), BLOCK, ROW))
        return {name: rows[name] for name in names if name in rows}


class ReducingWorker:
    """Works on blocks as another worker does, and keeps what of their rows may count."""

    def __init__(self, worker: Worker, of: ReducedJob) -> None:
        """Keep nothing yet; pieces of blocks, which have no places of their own, are sent whole."""
        self._worker, self._of = worker, of
        self._best, self._kinds = Best(of.goals, of.most), Kinds(of.goals)
        self._left = {block.number: len(block) for block in of.job.blocks()}
        self._shard = of.shards.begin() if of.shards is not None else None
        # Of rows that must be kept and cannot be here, none stays behind.
        self._is_whole = of.shards is not None and self._shard is None

    def learn(self, packet: bytes) -> None:
        """Go on from what the process that asked knows."""
        top, front, room, kinds = pickle.loads(packet)  # noqa: S301 - from the process that started this one
        self._best.learn(top, front, room)
        self._kinds.rows = kinds

    def work(self, block: Block) -> Found:
        """Return what is found in a block, less the rows of a whole one that others leave behind."""
        found = self._worker.work(block)
        # A block that comes again is sent whole: its rows may not count twice among those sent.
        if self._is_whole or self._left.pop(block.number, None) != len(block) or not found.num_rows:
            return found
        stored = self._shard.write(found) if self._shard is not None else None
        rows = self._of.compared(placed([found]))
        self._best.take_rows(rows)
        self._kinds.take_rows(rows)
        kept = (self._best.top, self._best.front, self._best.cloud, self._kinds.rows)
        own = [some[ROW][some[BLOCK] == block.number] for some in kept if some]
        places = np.unique(np.concatenate(own))
        which = places.astype(np.intp)
        columns = {name: column[which] for name, column in found.columns.items()}
        left_out = found.num_rows - len(which)
        return replace(found, columns=columns, places=places, left_out=left_out, stored=stored)
