"""Rows of stages as runs of one class, and the plans of a table put together whose rows have equally many runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from ....ir.records import dataclass
from ....ir.schedules.closed.line import StageSeries
from ..tasks import Array, Index

# Runs times plans worked on at a time: their arrays stay in the cache of a core.
BLOCK = 8192


@dataclass(frozen=True, slots=True)
class StageRuns:
    """Runs of neighbouring stages of one class: class, first stage and number of each.

    >>> StageRuns.of((0, 1, 1, 2)).runs
    ((0, 0, 1), (1, 1, 2), (2, 3, 1))
    """

    runs: tuple[tuple[int, int, int], ...]

    @staticmethod
    @lru_cache(maxsize=8192)
    def of(classes: tuple[int, ...]) -> StageRuns:
        """Group the classes of stages 0 to p - 1."""
        runs, first = [], 0
        for kind, same in groupby(classes):
            num = len(list(same))
            runs.append((kind, first, num))
            first += num
        return StageRuns(tuple(runs))

    @property
    def num_stages(self) -> int:
        """Stages in all."""
        return self.runs[-1][1] + self.runs[-1][2]

    def cut(self, stage: int) -> StageRuns:
        """Return the same row with a run that ends before this stage and one that is this stage alone.

        >>> StageRuns.of((0, 1, 1, 1)).cut(2).runs
        ((0, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1))
        """
        found: list[tuple[int, int, int]] = []
        for kind, first, num in self.runs:
            behind = first + num
            if not first <= stage < behind:
                found.append((kind, first, num))
                continue
            edges = (first, stage, stage + 1, behind)
            found += [(kind, start, stop - start) for start, stop in pairwise(edges) if stop > start]
        return StageRuns(tuple(found))


@dataclass(frozen=True, slots=True)
class Alike:
    """Some plans whose steps have one form, and whose rows have equally many runs.

    Attributes:
        plans: which plans these are.
        label: what their steps have in common.
        kinds: the class of each run, as (run, plan), or one column where all have the same row.
        runs: their runs, in the same way.
    """

    plans: NDArray[np.intp]
    label: int
    kinds: Index
    runs: StageSeries


def alike(rows: Sequence[StageRuns], which: Index, cut: Index, label: Index) -> Iterator[Alike]:
    """Put plans together, a few thousand at a time.

    Args:
        rows: distinct rows.
        which: the row of each plan.
        cut: the stage at which its row is cut, -1 for nowhere.
        label: what its step has in common with others, a small number.
    """
    places, labels = int(cut.max()) + 2, int(label.max()) + 1
    code = (which * labels + label) * places + (cut + 1)
    there = np.flatnonzero(np.bincount(code)).tolist()
    # Of each code its label, how many runs it has, and these.
    shapes = sorted((_shape(rows, c, labels, places) for c in there), key=_form)
    rank = np.zeros(there[-1] + 1, dtype=np.uint16 if len(shapes) < 2**16 else np.int64)
    rank[[s[2] for s in shapes]] = np.arange(len(shapes))
    rank = rank[code]
    order = np.argsort(rank, kind="stable")
    rank = rank[order]
    at = 0
    for (name, num), members in groupby(shapes, _form):
        table = np.array([s[3] for s in members], dtype=np.float64).transpose(2, 1, 0)
        start, stop = np.searchsorted(rank, [at, at + table.shape[2]]).tolist()
        step = max(BLOCK // num, 128)
        for k in range(start, stop, step):
            some = slice(k, min(k + step, stop))
            yield _alike(order[some], name, table, rank[some].astype(np.intp) - at)
        at += table.shape[2]


_Shape = tuple[int, int, int, tuple[tuple[int, int, int], ...]]


def _shape(rows: Sequence[StageRuns], code: int, labels: int, places: int) -> _Shape:
    """The label of a code, its number of runs, the code itself, and the runs."""
    rest, cut = divmod(code, places)
    which, label = divmod(rest, labels)
    runs = rows[which].runs if cut == 0 else rows[which].cut(cut - 1).runs
    return label, len(runs), code, runs


def _form(shape: _Shape) -> tuple[int, int]:
    return shape[0], shape[1]


def _alike(plans: NDArray[np.intp], label: int, table: Array, rank: NDArray[np.intp]) -> Alike:
    """Look up the runs of plans; of a whole table of equal rows, once."""
    found = table[:, :, rank[:1]] if rank[0] == rank[-1] else table[:, :, rank]
    kinds, first, num = found
    return Alike(plans, label, kinds.astype(np.int64), StageSeries(first, num, first[-1] + num[-1]))
