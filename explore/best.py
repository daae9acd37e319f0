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
# Rows of a picture: more would only make it slow.
_CLOUD = 4000
_LAST = np.uint64(2**64 - 1)
# Rows of a front that others are compared with before they are sorted.
_FEW = 8


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
    # The last of a full sample.
    _room: np.uint64 = _LAST

    def take(self, found: Found) -> None:
        """Take the rows of one more block."""
        if found.num_rows:
            self.take_rows(placed([found]))

    def take_rows(self, rows: Columns) -> None:
        """Take some more rows, one at least, with their places.

        Rows behind the last of a full top, rows that one of the front beats, and rows that a full sample has no room
        for are dropped before any are sorted: with many rows, that is nearly all.
        """
        aims = self._aims(rows)
        some = np.arange(len(rows[ROW]))
        full = 0 < self.most == len(self.top.get(ROW, ()))
        ahead = np.flatnonzero(~(aims[0] > self._aims(self.top)[0][-1])) if full else some
        if len(ahead) or not self.top:
            first = ahead[_ordered(rows, aims, ahead)[: self.most]]
            self.top = self._first(_with(self.top, _some(rows, first)), self.most)
        unbeaten = np.flatnonzero(~_beaten(aims, self._aims(self.front))) if self.front else some
        if len(unbeaten) or not self.front:
            best = unbeaten[pareto([aim[unbeaten] for aim in aims])]
            merged = _with(self.front, _some(rows, best))
            self.front = self._first(_some(merged, np.flatnonzero(pareto(self._aims(merged)))), None)
        self._waiting.append(_thinned(rows, np.flatnonzero(_mixed(rows) <= self._room)))
        if sum(len(some[BLOCK]) for some in self._waiting) > _CLOUD:
            self._cloud = self._all_thinned()
            self._room = _mixed(self._cloud).max()
            self._waiting.clear()

    def learn(self, top: Columns, front: Columns, room: int) -> None:
        """Go on from what another knows: rows behind that are behind here too.

        Its rows take the place of one's own, which may be among them: no row may count twice.
        """
        self.top, self.front = top, front
        if room < self._room:
            self._room, self._cloud = np.uint64(room), {}
            self._waiting.clear()

    @property
    def room(self) -> int:
        """The largest mixed place that the sample has room for."""
        return int(self._room)

    @property
    def cloud(self) -> Columns:
        """A sample of all rows, for pictures."""
        return self._all_thinned() if self._waiting else self._cloud

    def _all_thinned(self) -> Columns:
        """The cloud with the rows that wait: many blocks at a time, for most of them are small."""
        parts = [*([self._cloud] if self._cloud else []), *self._waiting]
        rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return _thinned(rows, np.arange(len(rows[ROW])))

    def _aims(self, rows: Columns) -> list[Array]:
        return [np.asarray(rows[goal.name] * goal.sign) for goal in self.goals]

    def _first(self, rows: Columns, most: int | None) -> Columns:
        return _some(rows, _ordered(rows, self._aims(rows), slice(None))[:most])


def _ordered(rows: Columns, aims: Sequence[Array], which: NDArray[np.intp] | slice) -> NDArray[np.intp]:
    """The order of some rows by what is aimed at, one goal behind the other, and then by their places."""
    return np.lexsort([rows[ROW][which], rows[BLOCK][which], *(aim[which] for aim in aims[::-1])])


def placed(found: Sequence[Found]) -> Columns:
    """Return the rows of blocks, each of which has some, with the block and the place in it that each came from."""
    place = {
        BLOCK: np.concatenate([np.full(one.num_rows, float(one.number)) for one in found]),
        ROW: np.concatenate(
            [np.arange(one.num_rows, dtype=np.float64) if one.places is None else one.places for one in found]
        ),
    }
    return {name: np.concatenate([one.columns[name] for one in found]) for name in found[0].columns} | place


def _mixed(rows: Columns) -> NDArray[np.uint64]:
    """Mix the place of each row: an odd factor keeps places apart, so that no two are equal and no order matters."""
    place = rows[BLOCK].astype(np.uint64) * np.uint64(1 << 32) + rows[ROW].astype(np.uint64)
    return np.asarray(place * np.uint64(0x9E3779B97F4A7C15))


def _thinned(rows: Columns, which: NDArray[np.intp]) -> Columns:
    """A sample of some rows that depends on nothing but which there are, in the order of their places."""
    if len(which) > _CLOUD:
        which = which[np.argpartition(_mixed(rows)[which], _CLOUD)[:_CLOUD]]
    return _some(rows, which[np.lexsort([rows[ROW][which], rows[BLOCK][which]])])


def _beaten(aims: Sequence[Array], front: Sequence[Array]) -> NDArray[np.bool_]:
    """Which rows one of a few of a front beats: as good in all and better in one."""
    found = np.zeros(len(aims[0]), dtype=bool)
    for at in range(0, len(front[0]), max(1, len(front[0]) // _FEW)):
        pairs = [(mine, theirs[at]) for mine, theirs in zip(aims, front, strict=True)]
        worse = np.any([mine > theirs for mine, theirs in pairs], axis=0)
        found |= worse & np.all([mine >= theirs for mine, theirs in pairs], axis=0)
    return found


def _with(kept: Columns, more: Columns) -> Columns:
    return more if not kept else {name: np.concatenate([kept[name], more[name]]) for name in kept}


def _some(rows: Columns, which: NDArray[np.intp]) -> Columns:
    return {name: column[which] for name, column in rows.items()}
