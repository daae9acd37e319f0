"""Where a quantity that never falls first reaches a level: bisection, over arrays at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .batching.times import Array

# Halvings of an interval: to a billionth of it.
_HALVINGS = 40


def first_reaching(quantity: Callable[[Array], Array], level: Array, low: Array, high: Array) -> Array:
    """Return the least point from `low` to `high` where a rising quantity is at `level`; `high` where it never is.

    >>> float(first_reaching(np.square, np.array(9.0), np.array(0.0), np.array(10.0))).__round__(6)
    3.0
    """
    below, above = np.broadcast_arrays(low, high)
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        reached = quantity(middle) >= level
        below, above = np.where(reached, below, middle), np.where(reached, middle, above)
    return above


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
