"""Where a quantity that never falls first reaches a level: bisection, over arrays at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .batching.times import Array

# Halvings of an interval, to a billionth of it; of few intervals, so many are prepared in one call of the quantity:
# numpy takes longer to be called than to work on few numbers.
_HALVINGS, _AT_ONCE, _FEW = 40, 4, 32


def first_reaching(quantity: Callable[[Array], Array], level: Array, low: Array, high: Array) -> Array:
    """Return the least point from `low` to `high` where a rising quantity is at `level`; `high` where it never is.

    `quantity` is also asked for points that have one more axis, in front.

    >>> float(first_reaching(np.square, np.array(9.0), np.array(0.0), np.array(10.0))).__round__(6)
    3.0
    """
    shape = np.broadcast_shapes(np.shape(low), np.shape(high), np.shape(quantity(low) >= level))
    ends = np.stack([np.broadcast_to(low, shape), np.broadcast_to(high, shape)])
    halvings = _AT_ONCE if ends[0].size <= _FEW else 1
    for _ in range(_HALVINGS // halvings):
        points = ends
        for _ in range(halvings):
            middles = (points[:-1] + points[1:]) / 2
            points = np.insert(points, np.arange(1, len(points)), middles, axis=0)
        reached, at = quantity(points[1:-1]) >= level, np.zeros((1, *shape), dtype=np.intp)
        for width in 2 ** np.arange(halvings)[::-1]:
            at += np.where(np.take_along_axis(reached, at + width - 1, 0), 0, width)
        ends = np.concatenate([np.take_along_axis(points, at, 0), np.take_along_axis(points, at + 1, 0)])
    return np.asarray(ends[1])


def last_meeting(meets: Callable[[int], bool], most: int) -> int:
    """Return the greatest whole number from 1 to `most` that meets what all smaller ones meet; 0 where 1 does not.

    >>> last_meeting(lambda n: n * n < 50, 100)
    7
    """
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
