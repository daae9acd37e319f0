"""Where a quantity that never falls first reaches a level: bisection, over arrays at once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from .batching.times import Array

# Halvings of an interval, to a billionth of it; of few intervals, so many are prepared in one call of the quantity:
# numpy takes longer to be called than to work on few numbers.
_HALVINGS, _AT_ONCE, _FEW = 40, 4, 128
# Points at most by which brackets are narrowed beforehand, and how narrow is narrow enough, of the interval.
_POINTS, _NARROW = 40, 2.0**-48

# A quantity of some elements of its arrays, by their places in these as they lie in memory.
Parts = Callable[[NDArray[np.intp]], Callable[[Array], Array]]


def first_reaching(quantity: Callable[[Array], Array], level: Array, low: Array, high: Array) -> Array:
    """Return the least point from `low` to `high` where a rising quantity is at `level`; `high` where it never is.

    `quantity` is also asked for points that have one more axis, in front.

    >>> float(first_reaching(np.square, np.array(9.0), np.array(0.0), np.array(10.0))).__round__(6)
    3.0
    """
    shape = np.broadcast_shapes(np.shape(low), np.shape(high), np.shape(quantity(low) >= level))
    halvings = _AT_ONCE if prod(shape) <= _FEW else 1
    points, widths = np.empty((2**halvings + 1, *shape)), [2**k for k in reversed(range(halvings))]
    points[0], points[-1] = low, high
    every: tuple[NDArray[np.intp], ...] = tuple(np.indices(shape, sparse=True))
    for _ in range(_HALVINGS // halvings):
        for width in widths:
            points[width :: 2 * width] = (points[: -1 : 2 * width] + points[2 * width :: 2 * width]) / 2
        reached, at = quantity(points[1:-1]) >= level, np.zeros(shape, dtype=np.intp)
        for width in widths:
            at = at + np.where(reached[at + width - 1, *every], 0, width)
        points[0], points[-1] = points[at, *every], points[at + 1, *every]
    return np.asarray(points[-1])


def first_reaching_each(parts: Parts, level: Array, high: Array) -> Array:
    """Return what `first_reaching` does from zero on, the same bits, with a third of its work on large arrays.

    Brackets of a quantity that rises say of nearly all halvings how they end; it is asked for what they leave open.

    >>> squares = lambda places: np.square
    >>> first_reaching_each(squares, np.array([9.0, 200.0]), np.full(2, 10.0)).round(6).tolist()
    [3.0, 10.0]
    """
    shape, wanted, most = high.shape, level.ravel(), high.ravel()
    if len(most) <= _FEW:
        return first_reaching(parts(np.arange(len(most))), wanted, np.zeros_like(most), most).reshape(shape)
    under, enough = _brackets(parts, wanted, most)
    below, above = np.zeros_like(most), most.copy()
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        reached = middle >= enough
        left = np.flatnonzero((middle > under) & ~reached)
        if len(left):
            reached[left] = parts(left)(middle[left]) >= wanted[left]
        np.copyto(above, middle, where=reached)
        np.copyto(below, middle, where=~reached)
    return above.reshape(shape)


def _brackets(parts: Parts, level: Array, high: Array) -> tuple[Array, Array]:
    """Points at which a quantity is known to be below a level, and to have reached it; infinite where it never does.

    T. R. Chandrupatla, A new hybrid quadratic/bisection algorithm, Advances in Engineering Software 28, 1997.
    """
    under, enough = np.zeros_like(high), np.full_like(high, np.inf)
    places = np.arange(len(high))
    at_end = parts(places)(high) - level
    never = at_end < 0
    under[never] = np.inf
    enough[~never] = high[~never]
    places = np.flatnonzero(at_end > 0)
    # The ends of each bracket, the newer first, and the point before these.
    new, old = np.zeros(len(places)), high[places]
    of_new, of_old = -level[places], at_end[places]
    last, of_last = new, of_new
    share = np.clip(of_new / (of_new - of_old), 0.05, 0.95)
    for _ in range(_POINTS):
        if not len(places):
            break
        point = new + share * (old - new)
        found = parts(places)(point) - level[places]
        under[places] = np.where(found < 0, np.maximum(under[places], point), under[places])
        enough[places] = np.where(found >= 0, np.minimum(enough[places], point), enough[places])
        same = (found < 0) == (of_new < 0)
        last, of_last = np.where(same, new, old), np.where(same, of_new, of_old)
        old, of_old = np.where(same, old, new), np.where(same, of_old, of_new)
        new, of_new = point, found
        wide = np.abs(old - new)
        left = np.flatnonzero(wide > _NARROW * high[places])
        places, wide = places[left], wide[left]
        new, of_new, old, of_old, last, of_last = (a[left] for a in (new, of_new, old, of_old, last, of_last))
        share = _next_share((new, old, last), (of_new, of_old, of_last), 0.4 * _NARROW * high[places] / wide)
    return under, enough


def _next_share(at: tuple[Array, Array, Array], of: tuple[Array, Array, Array], least: Array) -> Array:
    """How far from the newer end of a bracket to the other the next point lies: by a parabola, or half."""
    with np.errstate(divide="ignore", invalid="ignore"):
        part, rise = (at[0] - at[1]) / (at[2] - at[1]), (of[0] - of[1]) / (of[2] - of[1])
        smooth = (1.0 - np.sqrt(1.0 - part) < rise) & (rise < np.sqrt(part))
        along = (at[2] - at[0]) / (at[1] - at[0])
        curved = of[0] / (of[0] - of[1]) * of[2] / (of[2] - of[1]) - along * of[0] / (of[2] - of[0]) * of[1] / (
            of[1] - of[2]
        )
        share = np.where(smooth & np.isfinite(curved), curved, 0.5)
        # Just beside a point that hits the level.
        share = np.where(of[0] == 0.0, 0.0, share)
    return np.clip(share, least, 1.0 - least)


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
