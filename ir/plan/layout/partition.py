"""A row of blocks cut into consecutive parts: evenly, with the dearest as cheap as can be, or filled one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ...errors import PlanError

Array = NDArray[np.float64]
# Of costs against the dearest.
_ROUNDING = 1e-8


def even_parts(num_blocks: int, num_parts: int) -> tuple[int, ...]:
    """Return part sizes that differ by one at most; the larger ones stand in the middle.

    The first and the last part also carry the embedding and the head, so they get no extra block while others can.

    >>> even_parts(126, 16)
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    """
    size, rest = divmod(num_blocks, num_parts)
    start = (num_parts - rest) // 2
    return tuple(size + (start <= k < start + rest) for k in range(num_parts))


class Balance:
    """A row of blocks to be balanced, in any number of parts: what these have in common is worked out once.

    `costs` are of each block, in order, none negative; `first` is what the first part costs on top (embedding), `last`
    what the last one does (head and loss).

    >>> Balance([1.0] * 8, last=2.0).sizes(3)
    (3, 3, 2)
    """

    __slots__ = ("_first", "_last", "_middle", "_most", "num_blocks")

    def __init__(self, costs: Sequence[float], first: float = 0.0, last: float = 0.0) -> None:
        """Add up the cost of every run of blocks."""
        sums = np.concatenate([[0.0], np.cumsum(np.asarray(costs, dtype=np.float64))])
        order = np.arange(len(sums))
        self.num_blocks = len(costs)
        # Cost of a part that takes blocks i to j - 1, as (i, j); infinite where it may not.
        self._middle = np.where(order[None, :] > order[:, None], sums[None, :] - sums[:, None], np.inf)
        self._first = np.where(order > 0, sums - sums[0] + first, np.inf)
        self._last = np.where((order < len(costs)) | (last > 0.0), sums[-1] - sums + last, np.inf)
        # By the number of parts: the least dearest of them, for each end.
        self._most = [self._first]

    def sizes(self, num_parts: int) -> tuple[int, ...]:
        """Return part sizes with the least dearest part; among those, the ones with the least sum of squares.

        A part has at least one block unless it carries `first` or `last`; PlanError for more parts than blocks fill.
        """
        most_parts = self.num_blocks + bool(np.isfinite(self._last[-1]))
        if num_parts > most_parts or num_parts < 1:
            raise PlanError(f"{self.num_blocks} blocks cannot fill {num_parts} stages; legal: 1 to {self.num_blocks}")
        if num_parts == 1:
            return (self.num_blocks,)
        ceiling = float(np.maximum(self._dearest(num_parts - 1), self._last).min()) * (1.0 + 1e-12)
        first, middle, last = (
            np.where(costs <= ceiling, costs * costs, np.inf) for costs in (self._first, self._middle, self._last)
        )
        return _least_squares(first, middle, last, num_parts)

    def _dearest(self, num_parts: int) -> Array:
        """The dearest of so many first parts where it is least, for each end."""
        while len(self._most) < num_parts:
            self._most.append(np.maximum(self._most[-1][:, None], self._middle).min(axis=0))
        return self._most[num_parts - 1]


def filled_parts(costs: Sequence[float], num_parts: int, last: float = 0.0) -> tuple[int, ...]:
    """Return part sizes where each part takes blocks until the running cost reaches the part's share of the whole.

    So the first parts get the larger sizes, and the last ones may stay empty. `last` is what comes behind the blocks
    (head and loss).

    >>> filled_parts([1.0] * 16, 8, last=4.0)
    (3, 2, 3, 2, 3, 2, 1, 0)
    """
    share = (sum(costs) + last) / num_parts
    sizes, reached = [0] * num_parts, 0.0
    part = 0
    for cost in costs:
        sizes[part] += 1
        reached += cost
        part += part < num_parts - 1 and reached >= share * (part + 1) * (1.0 - _ROUNDING)
    return tuple(sizes)


def _least_squares(first: Array, middle: Array, last: Array, num_parts: int) -> tuple[int, ...]:
    """Return the sizes of two parts or more with the least sum of squares; of equal sums, later parts are longest.

    Only so many blocks as a part can have are looked at: (part, blocks from most to 1, end).
    """
    num = len(first) - 1
    most = int(np.isfinite(middle).sum(axis=1).max())
    place = np.arange(num + 1)
    before = place - np.arange(most, 0, -1)[:, None]
    parts = np.where(before >= 0, middle[before, place], np.inf)
    reached = np.full((num_parts - 1, most + num + 1), np.inf)
    reached[0, most:] = first
    step, size = reached.strides
    windows = as_strided(reached, (num_parts - 1, most, num + 1), (step, size, size), writeable=False)
    ways = np.empty_like(parts)
    for k in range(num_parts - 2):
        np.add(windows[k], parts, out=ways)
        np.minimum.reduce(ways, axis=0, out=reached[k + 1, most:])
    ends_at = [num, int((reached[-1, most:] + last).argmin())]
    for k in reversed(range(num_parts - 2)):
        end = ends_at[-1]
        ends_at.append(end - most + int((windows[k, :, end] + parts[:, end]).argmin()))
    return tuple(b - a for a, b in pairwise((0, *reversed(ends_at))))
