"""Names of values that follow from another symbol's: uneven shares, and lengths that have a limit.

`ceil_50257_tp` stands for 50257/tp rounded up, what the rank with the most work holds; `least_128_seq` for seq, but 128
at most, what a window leaves of a length. An expression stays a polynomial: these are symbols like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from .derived import Derived

if TYPE_CHECKING:
    from .expr import Num

_NAME = re.compile(r"ceil_([1-9]\d*)_([a-z]+)")
_LEAST = re.compile(r"least_(\d+)_([a-z]+)")


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


def depends_on(name: str) -> frozenset[str]:
    """Return the symbols whose values a symbol needs: the axis of a share, the length of a limited one, or itself."""
    if isinstance(name, Derived):
        return name.symbols
    found = read_share(name) or read_least(name)
    return frozenset({name if found is None else found[1]})


def number_of(name: str, env: Mapping[str, Num]) -> Num:
    """Return the value of a symbol; that of a share, a limited length or a derived one follows from what it needs.

    >>> number_of("ceil_50257_tp", {"tp": 2.0}), number_of("least_128_seq", {"seq": 4096.0})
    (25129.0, 128.0)
    """
    if name in env:
        return env[name]
    if isinstance(name, Derived):
        return name.value(env)
    if (share := read_share(name)) is not None:
        size, axis = share
        return -(-size // env[axis])
    if (least := read_least(name)) is not None:
        limit, value = least[0], env[least[1]]
        return float(min(value, limit)) if isinstance(value, int | float) else value.clip(max=limit)
    return env[name]


def smallest_share(size: int, degree: int) -> int:
    """Return what the last rank holds when every one before it takes a full share, as `torch.chunk` does.

    >>> smallest_share(50257, 4), smallest_share(10, 8)
    (12562, 0)
    """
    return max(0, size - -(-size // degree) * (degree - 1))
