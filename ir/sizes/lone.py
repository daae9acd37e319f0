"""Shares of a single thing: one head of keys, of which each rank that needs it holds a copy."""

from __future__ import annotations

from .expr import Dim, Expr, as_dim
from .shares import read_share


def without_lone(value: Dim) -> Dim:
    """Return the expression with each share of a single thing as 1: whoever holds some of it holds all.

    >>> from slipstick.ir.sizes.expr import symbol
    >>> from slipstick.ir.sizes.rounding import share
    >>> str(without_lone(share(1, "tp") * 128 + symbol("seq")))
    'seq + 128'
    """
    if not isinstance(value, Expr):
        return value
    found = [s for s in value.factors if (sh := read_share(s)) and sh[0] == 1]
    return as_dim(value.substitute(dict.fromkeys(found, 1))) if found else value
