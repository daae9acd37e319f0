"""Questions about derived sizes: the share that a symbol is, sizes as if every share were even, loads of ranks."""

from __future__ import annotations

from .expr import Derived, Dim, Expr, as_dim
from .rounding import IMBALANCE, KINDS, ROUNDED


def read_share(name: str) -> tuple[int, str] | None:
    """Return size and axis of a share's symbol, None for any other symbol.

    >>> from slipstick.ir.sizes.expr import symbol
    >>> from slipstick.ir.sizes.rounding import share
    >>> [read_share(s) for s in sorted((share(8, "tp") * 128 + symbol("seq")).factors)]
    [(8, 'tp'), None]
    """
    if not isinstance(name, Derived) or name.kind is not KINDS["ceil"]:
        return None
    count, degree = map(str, name.args)
    return int(count), degree


def smallest_share(size: int, degree: int) -> int:
    """Return what the last rank holds when every one before it takes a full share, as `torch.chunk` does.

    >>> smallest_share(50257, 4), smallest_share(10, 8)
    (12562, 0)
    """
    return max(0, size - -(-size // degree) * (degree - 1))


def without_lone(value: Dim) -> Dim:
    """Return the expression with each share of a single thing as 1: whoever holds some of it holds all.

    That is one head of keys, of which each rank that needs it holds a copy.

    >>> from slipstick.ir.sizes.expr import symbol
    >>> from slipstick.ir.sizes.rounding import share
    >>> str(without_lone(share(1, "tp") * 128 + symbol("seq")))
    'seq + 128'
    """
    if not isinstance(value, Expr):
        return value
    alone = [s for s in value.factors if (share := read_share(s)) and share[0] == 1]
    return as_dim(value.substitute(dict.fromkeys(alone, 1))) if alone else value


def evened(value: Dim) -> Dim:
    """Return the expression with every share as the plain quotient, as if all degrees divided.

    >>> from slipstick.ir.sizes.expr import symbol
    >>> from slipstick.ir.sizes.rounding import ceil_div, share
    >>> evened(share(8, "tp") * 128), evened(ceil_div(symbol("mbs") * 4, symbol("tp")))
    (1024/tp, 4*mbs/tp)
    """
    if not isinstance(value, Expr):
        return value
    shares = {s: s.args for s in value.factors if isinstance(s, Derived) and s.kind in ROUNDED and s.args[1].symbols}
    return as_dim(value.substitute({s: above / degree for s, (above, degree) in shares.items()}) if shares else value)


def is_imbalance(name: str) -> bool:
    """Whether a symbol is the load of the busiest rank over the mean.

    >>> is_imbalance("imb"), is_imbalance("ep")
    (True, False)
    """
    return name == IMBALANCE or (isinstance(name, Derived) and name.kind is KINDS["busy"])
