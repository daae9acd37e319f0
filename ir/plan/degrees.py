"""Numbers that divide, for checks and for messages that name the nearest legal ones."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt


def divisors(n: int) -> list[int]:
    """Return the divisors of a positive number, in order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def nearest(value: int, allowed: Sequence[int], most: int = 4) -> str:
    """Return the allowed values nearest to one, in order.

    >>> nearest(3, [1, 2, 4, 8, 16])
    '1, 2, 4, 8'
    """
    return ", ".join(map(str, sorted(sorted(allowed, key=lambda a: (abs(a - value), a))[:most])))
