"""What a ledger holds in a few numbers, from what it says of its blocks alone: plans are not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..goals import Goal
from .ledger import Ledger, lock_of, shards_of
from .lock import holder
from .packed import Head, ends
from .run import SearchRun
from .runs import LedgerFolder


@dataclass(frozen=True, slots=True)
class Counts:
    """How many candidates went which way, in the blocks that are done.

    Attributes:
        num_done: blocks that are done.
        num_legal: candidates that are legal by divisibility.
        num_kept: plans that were evaluated and kept.
        pruned: candidates that were not, by reason, the most frequent first.
        crashed: a line for each candidate that broke its worker.
        ranges: of each column with a number the least and the largest.
    """

    num_done: int
    num_legal: int
    num_kept: int
    pruned: Mapping[str, int]
    crashed: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, heads: Iterable[Head], names: Sequence[str]) -> Counts:
        """Add up the heads of blocks."""
        num_done = num_legal = num_kept = 0
        pruned, crashed = Counter[str](), list[str]()
        least = most = np.full(len(names), np.nan)
        for head in heads:
            num_done, num_legal, num_kept = num_done + 1, num_legal + head.num_legal, num_kept + head.num_rows
            pruned.update(head.counts())
            crashed += head.crashes()
            least, most = np.fmin(least, ends(head.least)), np.fmax(most, ends(head.most))
        pairs = zip(names, zip(least.tolist(), most.tolist(), strict=True), strict=True)
        ranges = {name: pair for name, pair in pairs if not np.isnan(pair[0])}
        return cls(num_done, num_legal, num_kept, dict(pruned.most_common()), tuple(crashed), ranges)

    @property
    def num_candidates(self) -> int:
        """Number of candidates: each is pruned, kept, or broke its worker."""
        return sum(self.pruned.values()) + self.num_kept + len(self.crashed)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run at a glance.

    Attributes:
        name: of its file, without the ending.
        path: its ledger.
        size_bytes: of the ledger and its log.
        run: what is searched.
        counts: what was found so far.
        running: the process that is at it, as in 'process 4711'; None when none is.
        wrong: why the ledger cannot be read; run and counts then say nothing.
    """

    name: str
    path: Path
    size_bytes: int
    run: SearchRun = field(default_factory=lambda: SearchRun("", "", "", (), 0))
    counts: Counts = field(default_factory=lambda: Counts.of((), ()))
    running: str | None = None
    wrong: str | None = None

    @classmethod
    def of(cls, path: Path) -> Summary:
        """Sum up a ledger; UsageError as `Ledger.open`, and where a block is damaged."""
        with Ledger.open(path) as ledger:
            counts = Counts.of(ledger.heads(), ledger.run.columns)
            return cls(path.stem, path, _size(path), ledger.run, counts, holder(lock_of(path)))

    @property
    def is_done(self) -> bool:
        """Whether every block is."""
        return self.wrong is None and self.counts.num_done == self.run.num_blocks

    @property
    def state(self) -> str:
        """Return one of done, running, interrupted, unreadable."""
        if self.wrong is not None:
            return "unreadable"
        return "done" if self.is_done else "interrupted" if self.running is None else "running"

    @property
    def best(self) -> tuple[str, float] | None:
        """The first objective and its best number; None where none was given or nothing is kept."""
        for objective in self.run.objectives[:1]:
            goal = Goal.of(objective, self.run.columns)
            if goal.name in self.counts.ranges:
                return goal.name, self.counts.ranges[goal.name][goal.sign < 0]
        return None


def summaries(runs: LedgerFolder) -> list[Summary]:
    """Sum up all runs of a folder; one that cannot be read says why, and holds the others up in nothing."""
    found = []
    for name in runs.names():
        path = runs.path(name)
        try:
            found.append(Summary.of(path))
        except UsageError as error:
            found.append(Summary(name, path, _size(path), wrong=str(error)))
    return found


def _size(path: Path) -> int:
    """Bytes of a ledger, of the log beside it and of its shards; of files that are there."""
    files = [path, path.with_name(f"{path.name}-wal"), *shards_of(path).glob("*")]
    return sum(file.stat().st_size for file in files if file.exists())
