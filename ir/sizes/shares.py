"""Names of values that follow from another symbol's: uneven shares, and lengths that have a limit.

`ceil_50257_tp` stands for 50257/tp rounded up, what the rank with the most work holds; `least_128_seq` for seq, but 128
at most, what a window leaves of a length. An expression stays a polynomial: these are symbols like any other.
"""

from __future__ import annotations

import re
from functools import lru_cache

_NAME = re.compile(r"ceil_([1-9][0-9]*)_([a-z]+)")
_LEAST = re.compile(r"least_([0-9]+)_([a-z]+)")


def share_name(size: int, axis: str) -> str:
    """Return the symbol of the largest share when `size` things are distributed over an axis.

    >>> share_name(50257, "tp")
    'ceil_50257_tp'
    """
    return f"ceil_{size}_{axis}"


@lru_cache(maxsize=4096)
def read_share(name: str) -> tuple[int, str] | None:
    """Return size and axis of a share's symbol, None for any other symbol.

    >>> read_share("ceil_8_tp"), read_share("tp")
    ((8, 'tp'), None)
    """
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match.group(1)), match.group(2))


def least_name(limit: int, length: str) -> str:
    """Return the symbol of a length that is at most `limit`.

    >>> least_name(128, "seq")
    'least_128_seq'
    """
    return f"least_{limit}_{length}"


@lru_cache(maxsize=4096)
def read_least(name: str) -> tuple[int, str] | None:
    """Return limit and length of a limited length's symbol, None for any other symbol.

    >>> read_least("least_128_seq"), read_least("seq")
    ((128, 'seq'), None)
    """
    match = _LEAST.fullmatch(name)
    return None if match is None else (int(match.group(1)), match.group(2))


def smallest_share(size: int, degree: int) -> int:
    """Return what the last rank holds when every one before it takes a full share, as `torch.chunk` does.

    >>> smallest_share(50257, 4), smallest_share(10, 8)
    (12562, 0)
    """
    return max(0, size - -(-size // degree) * (degree - 1))
