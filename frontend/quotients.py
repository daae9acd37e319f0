"""Divisions of sizes that leave no rest: torch writes `s*(2*s - 1)//s` where a view shares elements out among rows."""

from __future__ import annotations

from typing import cast

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.functions import FloorDiv


def exact_quotient(division: sympy.Expr) -> sympy.Expr | None:
    """Return the polynomial with whole coefficients that a floor division is, for all sizes; None if it has a rest.

    >>> s = sympy.Symbol("s", positive=True, integer=True)
    >>> exact_quotient(FloorDiv(2 * s**2 - s, s))
    2*s - 1
    >>> exact_quotient(FloorDiv(s**2 + 1, s)) is None
    True
    """
    if not isinstance(division, FloorDiv):  # what is left of one whose parts cancel
        return _without_divisions(division)
    above, below = (_without_divisions(part) for part in division.args)
    if above is None or below is None:
        return None
    found = sympy.cancel(above / below)
    sizes = sorted(found.free_symbols, key=str)
    if not sizes:
        return found if found.is_Integer else None
    polynomial = sympy.Poly(found, *sizes) if found.is_polynomial(*sizes) else None
    is_whole = polynomial is not None and all(c.is_Integer for c in polynomial.coeffs())
    return sympy.expand(found) if is_whole else None


def _without_divisions(size: sympy.Basic) -> sympy.Expr | None:
    """A size with the divisions inside it carried out; None where one has a rest."""
    inside = {division: exact_quotient(division) for division in size.atoms(FloorDiv)}
    if None in inside.values():
        return None
    return cast(sympy.Expr, size.xreplace(inside))


__all__ = ["FloorDiv", "exact_quotient"]
