"""The best row of each kind of plan: what differs in chunks of a stage or micro-batches alone is one kind.

Every ranked table of plans has a row a kind.
"""

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
    """The best row of each kind, kept while blocks come in any order.

    Attributes:
        goals: the first sorts; the next break ties.
        rows: the best of each kind, best first.
    """

    goals: Sequence[Goal]
    rows: Columns = field(default_factory=dict)

    @property
    def goal(self) -> Goal:
        """What is compared."""
        return self.goals[0]

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
        aims = [goal.aim(both[goal.name]) for goal in self.goals]
        order = np.lexsort([both[ROW], both[BLOCK], *aims[::-1]])
        # Where each kind is met first.
        first = order[np.sort(np.unique(_kind_numbers(both)[order], return_index=True)[1])]
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


def _kind_numbers(rows: Columns) -> NDArray[np.intp]:
    """Return a number for each row, the same for rows of one kind."""
    keys = np.ascontiguousarray(keys_of(rows, np.arange(len(rows["tp"]))))
    lines = keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
    return np.asarray(np.unique(lines, return_inverse=True)[1])


def places_of(kinds: Columns, rows: Columns) -> list[int | None]:
    """Return the place of the kind of each row among rows of a kind each; None where it is not there.

    >>> places_of({"tp": np.array([1.0, 2.0])}, {"tp": np.array([2.0, 1.0, 4.0])})
    [1, 0, None]
    """
    names = [name for name in KIND if name in rows]
    numbers = _kind_numbers({name: np.concatenate([kinds[name], rows[name]]) for name in names}).tolist()
    num = len(kinds["tp"])
    place = {number: at for at, number in enumerate(numbers[:num])}
    return [place.get(number) for number in numbers[num:]]


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
