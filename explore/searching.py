"""A whole search in one call: every block worked on, the best kept, the rest counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

from ..ir.records import dataclass
from .best import Best, placed
from .block import Found
from .goals import Goal
from .job import Executor, InProcess, Job
from .kinds import Kinds
from .reduced import ReducedJob
from .runs.ledger import Ledger
from .runs.running import Ran, run_blocks
from .runs.shards import Shards

# Blocks and rows that are gathered at a time; of reduced blocks, which have a row or two, more.
_BLOCKS, _REDUCED, _ROWS = 32, 128, 4096


class Aimed(Job, Protocol):
    """A job that knows what it is for."""

    @property
    def goals(self) -> Sequence[Goal]:
        """What should be good, the first first."""
        ...


@dataclass(slots=True)
class CandidateTally:
    """How many candidates went which way.

    Attributes:
        num_candidates: combinations that multiply and divide as they must.
        num_legal: of these, those that the model can be cut by.
        num_kept: those that were evaluated and keep every limit.
        pruned: the others, by the reason.
        crashed: those that failed, in words.
    """

    num_candidates: int = 0
    num_legal: int = 0
    num_kept: int = 0
    pruned: Counter[str] = field(default_factory=Counter)
    crashed: list[str] = field(default_factory=list)

    def take(self, found: Found) -> None:
        """Count one more block."""
        self.num_candidates += found.num_candidates
        self.num_legal += found.num_legal
        self.num_kept += found.num_kept
        self.pruned.update(found.pruned)
        self.crashed += found.crashed


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found.

    Attributes:
        best: the first rows, the front, and a cloud of others.
        tally: where all candidates went.
        ran: blocks that were done now, and before.
        kinds: the best of each kind of plan; None where rows are no plans.
    """

    best: Best
    tally: CandidateTally
    ran: Ran
    kinds: Kinds | None = None


def search(
    job: Aimed,
    executor: Executor | None = None,
    ledger: Ledger | None = None,
    top: int = 20,
    watch: Callable[[Found, Best], None] | None = None,
    reduced: bool = False,
) -> Searched:
    """Work on every block of a job, and gather what is found.

    Args:
        job: what is searched.
        executor: where; None for this process.
        ledger: keeps each block as it is done, and gives those that it holds; None for none.
        top: best rows that are kept, besides the Pareto front.
        watch: is shown each block, and the best so far, without some of the last blocks.
        reduced: have other processes leave out rows that cannot count; with a ledger they keep all in its shards.
    """
    best, tally, kinds = Best(job.goals, top), CandidateTally(), Kinds(job.goals)
    waiting, num_waiting = list[Found](), 0
    elsewhere = executor is not None and not isinstance(executor, InProcess)
    asked: Job = job
    if reduced and elsewhere:
        asked = ReducedJob(job, tuple(job.goals), top, None if ledger is None else Shards.of(ledger))
    most = _REDUCED if isinstance(asked, ReducedJob) else _BLOCKS

    def gather() -> None:
        nonlocal num_waiting
        num_waiting = 0
        if waiting:
            rows = placed(waiting)
            best.take_rows(rows)
            kinds.take_rows(rows)
            waiting.clear()
            if isinstance(asked, ReducedJob):
                asked.tell(best, kinds)

    def take(found: Found) -> None:
        nonlocal num_waiting
        tally.take(found)
        if num_rows := found.num_rows:
            waiting.append(found)
            num_waiting += num_rows
        # Most blocks of a small search have a few rows: they are compared with the best many at a time.
        if len(waiting) >= most or num_waiting >= _ROWS:
            gather()
        if watch is not None:
            watch(found, best)

    ran = run_blocks(asked, executor or InProcess(), ledger, take)
    gather()
    return Searched(best, tally, ran, kinds)
