"""The best rows of a search and those that no other beats, kept while blocks come in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ..ir.records import dataclass
from .block import Found
from .goals import Goal
from .pareto import pareto

Array = NDArray[np.float64]
Columns = Mapping[str, Array]
# Where a row came from: its block, and its place in it. Ties are broken by these, so that no order of work shows.
BLOCK, ROW = "block", "row"


@dataclass(slots=True)
class Best:
    """The first rows by the goals, one behind the other, and the Pareto front of all rows so far.

    Attributes:
        goals: the first sorts; the next break ties.
        most: rows kept in `top`.
        top: the best rows, best first.
        front: rows that no other beats in every goal, in the order of `top`.
    """

    goals: Sequence[Goal]
    most: int = 20
    top: Columns = field(default_factory=dict)
    front: Columns = field(default_factory=dict)
    _cloud: Columns = field(default_factory=dict)
    _waiting: list[Columns] = field(default_factory=list)

    def take(self, found: Found) -> None:
        """Take the rows of one more block."""
        if found.num_rows:
            self.take_rows(placed([found]))

    def take_rows(self, rows: Columns) -> None:
        """Take some more rows, one at least, with their places."""
        first = self._ordered(rows)[: self.most]
        self.top = self._first(_with(self.top, _some(rows, first)), self.most)
        merged = _with(self.front, _some(rows, np.flatnonzero(pareto(self._aims(rows)))))
        self.front = self._first(_some(merged, np.flatnonzero(pareto(self._aims(merged)))), None)
        self._waiting.append(_thinned(rows))
        if sum(len(some[BLOCK]) for some in self._waiting) > _CLOUD:
            self._cloud = self._all_thinned()
            self._waiting.clear()

    @property
    def cloud(self) -> Columns:
        """A sample of all rows, for pictures."""
        return self._all_thinned() if self._waiting else self._cloud

    def _all_thinned(self) -> Columns:
        """The cloud with the rows that wait: many blocks at a time, for most of them are small."""
        parts = [*([self._cloud] if self._cloud else []), *self._waiting]
        return _thinned({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def _aims(self, rows: Columns) -> list[Array]:
        return [np.asarray(rows[goal.name] * goal.sign) for goal in self.goals]

    def _ordered(self, rows: Columns) -> NDArray[np.intp]:
        return np.lexsort([rows[ROW], rows[BLOCK], *self._aims(rows)[::-1]])

    def _first(self, rows: Columns, most: int | None) -> Columns:
        return _some(rows, self._ordered(rows)[:most])


def placed(found: Sequence[Found]) -> Columns:
    """Return the rows of blocks, each of which has some, with the block and the place in it that each came from."""
    place = {
        BLOCK: np.concatenate([np.full(one.num_rows, float(one.number)) for one in found]),
        ROW: np.concatenate(
            [np.arange(one.num_rows, dtype=np.float64) if one.places is None else one.places for one in found]
        ),
    }
    return {name: np.concatenate([one.columns[name] for one in found]) for name in found[0].columns} | place


# Rows of a picture: more would only make it slow.
_CLOUD = 4000


def _thinned(rows: Columns) -> Columns:
    """A sample that depends on nothing but which rows there are, in the order of their places."""
    if len(rows[BLOCK]) > _CLOUD:
        place = rows[BLOCK].astype(np.uint64) * np.uint64(1 << 32) + rows[ROW].astype(np.uint64)
        # An odd factor mixes places and keeps them apart: no two rows are equal, and no order of them matters.
        rows = _some(rows, np.argpartition(place * np.uint64(0x9E3779B97F4A7C15), _CLOUD)[:_CLOUD])
    return _some(rows, np.lexsort([rows[ROW], rows[BLOCK]]))


def _with(kept: Columns, more: Columns) -> Columns:
    return more if not kept else {name: np.concatenate([kept[name], more[name]]) for name in kept}


def _some(rows: Columns, which: NDArray[np.intp]) -> Columns:
    return {name: column[which] for name, column in rows.items()}
