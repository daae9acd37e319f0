"""The best row of each kind of plan: what differs in chunks of a stage or micro-batches alone is one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ..ir.plan import Family
from ..ir.records import dataclass
from .best import BLOCK, ROW, Columns, placed
from .block import Found
from .goals import Goal

# What makes a kind, so far as a search has it.
KIND = (
    "system",
    "base",
    "gpus",
    "tp",
    "pp",
    "cp",
    "cp_ulysses",
    "ep",
    "etp",
    "sp",
    "zero",
    "recompute",
    "schedule",
    "cp_method",
)
# Words that say nothing where an axis is 1: plans that differ in them alone are the same plan.
_IDLE: Mapping[str, str] = MappingProxyType({"sp": "tp", "zero": "dp", "schedule": "pp", "cp_method": "cp"})
# Rows further from the best than this are of no kind that anybody would look at.
_WORST = 2.0


@dataclass(slots=True)
class Kinds:
    """The best row of each kind by a goal, kept while blocks come in any order.

    Attributes:
        goal: what is compared.
        rows: the best of each kind, best first.
    """

    goal: Goal
    rows: Columns = field(default_factory=dict)

    def take(self, found: Found) -> None:
        """Take the rows of one more block."""
        if found.num_rows:
            self.take_rows(placed([found]))

    def take_rows(self, new: Columns) -> None:
        """Take some more rows, one at least, with their places; those that are no plans have no kinds."""
        if "tp" not in new or self.goal.name not in new:
            return
        parts = [self.rows, new] if self.rows else [new]
        aims = [self.goal.aim(part[self.goal.name]) for part in parts]
        # A worse goal is a greater one where less is better, and a lesser where more is: twice, or half as much.
        best = min(float(aim.min()) for aim in aims)
        which = [np.flatnonzero(aim <= (best * _WORST if best > 0 else best / _WORST)) for aim in aims]
        if self.rows and not len(which[-1]):
            return
        pairs = [*zip(parts, which, strict=True)]
        both = {name: np.concatenate([part[name][near] for part, near in pairs]) for name in parts[0]}
        order = np.lexsort([both[ROW], both[BLOCK], self.goal.aim(both[self.goal.name])])
        keys = np.ascontiguousarray(keys_of(both, order))
        lines = keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
        # Where each different row is met first.
        first = order[np.sort(np.unique(lines, return_index=True)[1])]
        self.rows = {name: column[first] for name, column in both.items()}

    def within(self, share: float) -> Columns:
        """Return kinds whose best row is within a share of the best of all, best first."""
        if not self.rows:
            return {}
        aim = self.goal.aim(self.rows[self.goal.name])
        best = float(aim[0])
        kept = aim <= (best * (1.0 + share) if best > 0 else best * (1.0 - share))
        return {name: column[kept] for name, column in self.rows.items()}


def keys_of(rows: Columns, which: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return what makes the kind of some rows, a row each; words that say nothing are one.

    >>> rows = {"tp": np.array([1.0, 1.0]), "sp": np.array([0.0, 1.0]), "pp": np.array([2.0, 2.0])}
    >>> keys_of(rows, np.array([0, 1])).tolist()
    [[1.0, 2.0, -1.0], [1.0, 2.0, -1.0]]
    """
    columns = []
    for name in (name for name in KIND if name in rows):
        column, axis = rows[name][which], _IDLE.get(name, "")
        columns.append(np.where(rows[axis][which] > 1, column, -1.0) if axis in rows else column)
    return np.stack(columns, axis=1)


def simplest(rows: Columns, schedules: Sequence[str] = (), recompute: Sequence[str] = ()) -> int:
    """Return the row with the fewest axes, then the fewest words that are not the usual ones; the best of equals.

    `schedules` and `recompute` are the words of these columns.
    """
    of = {name: rows[name] for name in ("tp", "pp", "cp", "ep", "vpp") if name in rows}
    axes, words = np.zeros(len(rows["tp"])), np.zeros(len(rows["tp"]))
    for name, column in of.items():
        if name == "vpp":
            words += column > 1
        else:
            axes += column > 1
    usual = {Family().schedule, "none"}
    for name, known in (("schedule", schedules), ("recompute", recompute)):
        if name in rows and known:
            words += np.array([known[int(at)] not in usual for at in rows[name]], dtype=float)
    return int(np.lexsort([np.arange(len(words)), words, axes])[0])
