"""Torch's sizes as ours: polynomials, and quotients rounded down, rests, the larger and the smaller of two sizes.

A division that leaves no rest is carried out: torch writes `s*(2*s - 1)//s` where a view deals elements out to rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Protocol, cast

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.functions import CeilToInt, FloorDiv, FloorToInt, IntTrueDiv, Max, Min, Mod, PythonMod

from ...ir.errors import DataSizeError, TraceError
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, product
from ...ir.sizes.rounding import ceil_div, floor_div, larger, modulo, smaller


class SizeExpr(Protocol):
    """What we read of a sympy expression."""

    is_Integer: bool  # noqa: N815 - sympy's name
    is_Symbol: bool  # noqa: N815 - sympy's name
    is_Add: bool  # noqa: N815 - sympy's name
    is_Mul: bool  # noqa: N815 - sympy's name
    is_Pow: bool  # noqa: N815 - sympy's name

    @property
    def args(self) -> tuple[SizeExpr, ...]:
        """What a sum, a product or a function is made of."""
        ...

    def xreplace(self, rule: Mapping[SizeExpr, SizeExpr]) -> SizeExpr:
        """Put other symbols in for some."""
        ...

    def __int__(self) -> int: ...

    def __hash__(self) -> int: ...


def converted(expr: SizeExpr, names: Mapping[SizeExpr, Expr]) -> Expr:
    """Return a size of torch as an expression over named symbols; TraceError for one that is known at run time only."""
    if expr.is_Integer:
        return as_expr(int(expr))
    if expr.is_Symbol:
        if expr not in names:
            raise DataSizeError(
                f"the size '{expr}' is only known at run time (it depends on data, not on batch or length)"
            )
        return names[expr]
    if expr.is_Add:
        parts = [converted(a, names) for a in expr.args]
        return sum(parts[1:], parts[0])
    if expr.is_Mul:
        return product(converted(a, names) for a in expr.args)
    if expr.is_Pow and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        return product([converted(expr.args[0], names)] * int(expr.args[1]))
    if isinstance(expr, FloorDiv) and (quotient := exact_quotient(_one_a_name(expr, names))) is not None:
        return converted(cast(SizeExpr, quotient), names)
    return as_expr(_rounded(expr, names))


def _one_a_name(size: SizeExpr, names: Mapping[SizeExpr, Expr]) -> FloorDiv:
    """A division with one symbol for all sizes of one name, so that those of several inputs cancel."""
    first: dict[Expr, SizeExpr] = {}
    return cast("FloorDiv", size.xreplace({one: first.setdefault(name, one) for one, name in names.items()}))


def _rounded(expr: SizeExpr, names: Mapping[SizeExpr, Expr]) -> Dim:
    """A size that is no polynomial."""
    if isinstance(expr, FloorToInt | CeilToInt) and isinstance(expr.args[0], IntTrueDiv):
        return (floor_div if isinstance(expr, FloorToInt) else ceil_div)(*_sizes(expr.args[0].args, names))
    sizes = _sizes(expr.args, names)
    if isinstance(expr, FloorDiv):
        return floor_div(*sizes)
    if isinstance(expr, Mod | PythonMod):
        return modulo(*sizes)
    if isinstance(expr, Max | Min):
        return reduce(larger if isinstance(expr, Max) else smaller, sizes)
    raise TraceError(f"the size '{expr}' is no whole number that follows from batch and sequence length")


def _sizes(exprs: Sequence[SizeExpr], names: Mapping[SizeExpr, Expr]) -> list[Dim]:
    return [as_dim(converted(a, names)) for a in exprs]


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


__all__ = ["SizeExpr", "converted", "exact_quotient"]
