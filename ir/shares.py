"""Names of uneven shares: `ceil_50257_tp` stands for 50257/tp rounded up, what the rank with the most work holds.

An expression stays a polynomial: a share is a symbol like any other, but its value follows from the degree's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .expr import Num

_NAME = re.compile(r"ceil_([1-9]\d*)_([a-z]+)")


def share_name(size: int, axis: str) -> str:
    """Return the symbol of the largest share when `size` things are dealt out over an axis.

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


def depends_on(name: str) -> str:
    """Return the symbol whose value a symbol needs: the axis of a share, else itself."""
    share = read_share(name)
    return name if share is None else share[1]


def number_of(name: str, env: Mapping[str, Num]) -> Num:
    """Return the value of a symbol; that of a share is computed from its axis.

    >>> number_of("ceil_50257_tp", {"tp": 2.0})
    25129.0
    """
    share = None if name in env else read_share(name)
    if share is None:
        return env[name]
    size, axis = share
    return -(-size // env[axis])


def smallest_share(size: int, degree: int) -> int:
    """Return what the last rank holds when every one before it takes a full share, as `torch.chunk` does.

    >>> smallest_share(50257, 4), smallest_share(10, 8)
    (12562, 0)
    """
    return max(0, size - -(-size // degree) * (degree - 1))
