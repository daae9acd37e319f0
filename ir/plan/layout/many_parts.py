"""Many rows of blocks cut into equally many parts at once, each as `Balance` cuts it, to the same last bit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...records import dataclass
from .partition import Balance, even_parts

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Rows that are worked on at a time: their arrays stay in a core's cache.
_AT_ONCE = 512
# Ends of a part up to which rows are cut together; where blocks differ much, each is cut by itself.
_WIDE = 16


def many_parts(costs: Array, first: Array, last: Array, num_parts: int) -> Index:
    """Return the sizes of two parts or more that `Balance` finds, as (row, part).

    The arithmetic is that of `Balance`, element by element, but over few ends of each part: those between which a cut
    exists whose dearest part costs no more than that of an even cut, which is a cut too.

    Args:
        costs: of every block, as (row, block), none negative; no fewer blocks than parts.
        first: what the first part of each row costs on top.
        last: what the last part costs on top.
        num_parts: parts of every row.

    >>> many_parts(np.ones((2, 8)), np.zeros(2), np.array([2.0, 0.0]), 3).tolist()
    [[3, 3, 2], [2, 3, 3]]
    """
    found = np.empty((len(costs), num_parts), dtype=np.intp)
    for start in range(0, len(costs), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        sums = np.concatenate([np.zeros((len(costs[some]), 1)), np.cumsum(costs[some], axis=1)], axis=1)
        rows = _Rows(sums, first[some], last[some])
        ends = _ends(rows, num_parts)
        if max(map(len, ends)) <= _WIDE:
            found[some] = _cut(rows, ends)
        else:
            each = zip(costs[some].tolist(), rows.first.tolist(), rows.last.tolist(), strict=True)
            found[some] = [Balance(*row).sizes(num_parts) for row in each]
    return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """Running sums of the costs of rows of blocks, and what their first and last parts cost on top."""

    sums: Array
    first: Array
    last: Array

    @property
    def num_blocks(self) -> int:
        return int(self.sums.shape[1]) - 1

    def begins(self, ends: Index) -> Array:
        """Cost of the first part by where it ends, infinite where it may not."""
        costs = self.sums[:, ends] - self.sums[:, :1] + self.first[:, None]
        return np.where(ends > 0, costs, np.inf)

    def between(self, starts: Index, ends: Index) -> Array:
        """Cost of a part in between, as (row, start, end)."""
        costs = self.sums[:, None, ends] - self.sums[:, starts, None]
        return np.where(ends > starts[:, None], costs, np.inf)

    def closes(self, starts: Index) -> Array:
        """Cost of the last part by where it starts."""
        costs = self.sums[:, -1:] - self.sums[:, starts] + self.last[:, None]
        return np.where((starts < self.num_blocks) | (self.last[:, None] > 0.0), costs, np.inf)

    def even_cost(self, num_parts: int) -> Array:
        """Cost of the dearest part of an even cut."""
        ends = np.cumsum(even_parts(self.num_blocks, num_parts))
        parts = np.diff(self.sums[:, [0, *ends]], axis=1)
        parts[:, 0] += self.first
        parts[:, -1] += self.last
        return np.asarray(parts.max(axis=1))


def _ends(rows: _Rows, num_parts: int) -> list[Index]:
    """Ends of each part but the last between which every cut lies that is no dearer than an even one, for all rows."""
    sums = rows.sums
    # A little more than the sums round.
    most = rows.even_cost(num_parts) * (1.0 + 1e-9) + sums[:, -1] * 1e-12
    latest, earliest = list[int](), list[int]()
    # Sums never fall, and an infinite one behind them ends every search.
    beyond = np.concatenate([sums, np.full((len(sums), 1), np.inf)], axis=1)
    ahead = (beyond > (most - rows.first)[:, None]).argmax(axis=1) - 1
    behind = (beyond >= (sums[:, -1] + rows.last - most)[:, None]).argmax(axis=1)
    every = np.arange(len(sums))
    for _ in range(num_parts - 1):
        latest.append(int(ahead.max()))
        earliest.append(int(behind.min()))
        ahead = (beyond > (sums[every, ahead] + most)[:, None]).argmax(axis=1) - 1
        behind = (beyond >= (sums[every, behind] - most)[:, None]).argmax(axis=1)
    return [np.arange(a, b + 1) for a, b in zip(reversed(earliest), latest, strict=True)]


def _cut(rows: _Rows, ends: Sequence[Index]) -> Index:
    """Sizes of parts with the least sum of squares among those with the least dearest, as (row, part)."""
    begin, end = rows.begins(ends[0]), rows.closes(ends[-1])
    middle = [rows.between(a, b) for a, b in pairwise(ends)]
    dearest = begin
    for costs in middle:
        dearest = np.maximum(dearest[:, :, None], costs).min(axis=1)
    ceiling = np.maximum(dearest, end).min(axis=1) * (1.0 + 1e-12)
    begin, end = (np.where(costs <= ceiling[:, None], costs * costs, np.inf) for costs in (begin, end))
    least, ways = begin, list[Array]()
    for costs in middle:
        ways.append(least[:, :, None] + np.where(costs <= ceiling[:, None, None], costs * costs, np.inf))
        least = ways[-1].min(axis=1)
    # Of equal sums the part before ends earliest, part by part from the last one on.
    every, at = np.arange(len(least)), (least + end).argmin(axis=1)
    found = np.zeros((len(least), len(ends) + 2), dtype=np.intp)
    found[:, -1], found[:, -2] = rows.num_blocks, ends[-1][at]
    for k in reversed(range(len(ways))):
        at = ways[k][every, :, at].argmin(axis=1)
        found[:, k + 1] = ends[k][at]
    return np.diff(found, axis=1)
