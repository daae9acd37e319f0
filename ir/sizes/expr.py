"""Small Laurent polynomials over named symbols: the dimensions, FLOPs and bytes of a graph.

A dimension is an `int` or an `Expr`. Sharding divides a dimension by the symbol of a degree, so exponents may be
negative. That a degree divides is a constraint kept beside the graph; a size that the model itself rounds is a symbol
of its own (`ir/sizes/rounding.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from .derived import Derived
from .shares import depends_on, least_name, number_of, read_least, read_share, share_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Num: TypeAlias = "float | NDArray[np.float64]"
Monomial: TypeAlias = tuple[tuple[str, int], ...]
Coefficient: TypeAlias = int | float
Terms: TypeAlias = tuple[tuple[Monomial, Coefficient], ...]


class Expr:
    """An immutable sum of monomials with integer or float coefficients.

    >>> batch, tp = symbol("batch"), symbol("tp")
    >>> str((batch * 3 + 1) * 4096 / tp)
    '4096/tp + 12288*batch/tp'
    """

    __slots__ = ("_hash", "_symbols", "terms")

    def __init__(self, terms: Mapping[Monomial, Coefficient]) -> None:
        """Keep the non-zero terms in a canonical order."""
        kept = [(m, _tidy(c)) for m, c in terms.items() if c != 0]
        if len(kept) > 1:
            kept.sort()
        self.terms: Terms = tuple(kept)
        self._hash: int | None = None
        self._symbols: frozenset[str] | None = None

    @classmethod
    def _of(cls, terms: Terms) -> Expr:
        """Take terms that are in order, tidy and not zero."""
        made = cls.__new__(cls)
        made.terms = terms
        made._hash = None
        made._symbols = None
        return made

    def __hash__(self) -> int:
        """Hash by value; a constant as its number, which it equals."""
        if self._hash is None:
            self._hash = _hash(self.terms)
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Compare by value; an int equals a constant."""
        if isinstance(other, Expr):
            return self.terms == other.terms
        if isinstance(other, int | float):
            return self.terms == _constant_terms(other)
        return NotImplemented

    def __add__(self, other: Dim | float) -> Expr:
        """Add two expressions."""
        more = other.terms if isinstance(other, Expr) else _constant_terms(other)
        if not more or not self.terms:
            return Expr._of(more or self.terms)
        out = dict(self.terms)
        for m, c in more:
            out[m] = out.get(m, 0) + c
        return Expr(out)

    def __neg__(self) -> Expr:
        """Negate every term."""
        return self * -1

    def __sub__(self, other: Dim | float) -> Expr:
        """Subtract."""
        return self + _as_expr(other) * -1

    def __rsub__(self, other: Dim | float) -> Expr:
        """Subtract from a number."""
        return _as_expr(other) - self

    def __mul__(self, other: Dim | float) -> Expr:
        """Multiply out."""
        factors = other.terms if isinstance(other, Expr) else _constant_terms(other)
        if len(factors) == 1:
            ((monomial, factor),) = factors
            if not monomial:
                return self._scaled(factor)
            if len(self.terms) == 1:
                ((mine, times),) = self.terms
                return Expr._of(_term(_times(mine, monomial), times * factor))
        out: dict[Monomial, Coefficient] = {}
        for m1, c1 in self.terms:
            for m2, c2 in factors:
                m = _times(m1, m2)
                out[m] = out.get(m, 0) + c1 * c2
        return Expr(out)

    def _scaled(self, factor: Coefficient) -> Expr:
        """Multiply by a number that is not zero: the order of the terms stays."""
        if factor == 1:
            return self
        scaled = tuple((m, _tidy(c * factor)) for m, c in self.terms)
        return Expr._of(tuple(t for t in scaled if t[1] != 0))

    def __truediv__(self, other: Dim | float) -> Expr:
        """Divide by a number or by an expression of one term."""
        divisor = _as_expr(other)
        if len(divisor.terms) != 1:
            raise ZeroDivisionError(f"can only divide by one term, not by '{divisor}'")
        ((m, c),) = divisor.terms
        inverse = tuple((s, -e) for s, e in m)
        if len(self.terms) == 1:
            ((mine, k),) = self.terms
            return Expr._of(_term(_times(mine, inverse), _over(k, c)))
        return Expr({_times(t, inverse): _over(k, c) for t, k in self.terms})

    __radd__ = __add__
    __rmul__ = __mul__

    @property
    def symbols(self) -> frozenset[str]:
        """The names this expression depends on; a share depends on its axis, a rounded size on what is rounded."""
        if self._symbols is None:
            self._symbols = frozenset(name for s in self.factors for name in depends_on(s))
        return self._symbols

    @property
    def factors(self) -> frozenset[str]:
        """The names as they are written, shares included."""
        return frozenset(s for m, _ in self.terms for s, _ in m)

    @property
    def is_integral(self) -> bool:
        """Whether every coefficient is an integer and no exponent is negative."""
        return all(isinstance(c, int) and all(e > 0 for _, e in m) for m, c in self.terms)

    def evaluate(self, env: Mapping[str, Num]) -> Num:
        """Put numbers or equally long arrays in for the symbols.

        >>> (symbol("a") * symbol("b") / 2).evaluate({"a": 3.0, "b": 4.0})
        6.0
        """
        total: Num = 0.0
        for m, c in self.terms:
            value: Num = float(c)
            for s, e in m:
                value = value * number_of(s, env) ** e
            total = total + value
        return total

    def substitute(self, env: Mapping[str, Dim]) -> Expr:
        """Replace symbols by integers or expressions (negative powers need a single term).

        A share follows its axis, a limited length its length, where that becomes an integer; what is in one of these
        becomes nothing else. A derived symbol follows its arguments.
        """
        if not (self.symbols | self.factors) & env.keys():
            return self
        total = _constant(0)
        for m, c in self.terms:
            term = _constant(c)
            for s, e in m:
                term = _power(term, _replaced(s, env), e)
            total = total + term
        return total

    def __str__(self) -> str:
        """Print as the parser reads it: `2*batch*seq/tp + 1`."""
        if not self.terms:
            return "0"
        return " + ".join(_print_term(m, c) for m, c in reversed(self.terms))

    __repr__ = __str__


Dim: TypeAlias = int | Expr


def symbol(name: str) -> Expr:
    """Return the expression that is one symbol."""
    return Expr._of(((((name, 1),), 1),))


def share(size: int, axis: str) -> Expr:
    """Return size/axis rounded up: the largest share when whole things are dealt out.

    >>> share(8, "tp").evaluate({"tp": 16.0}), (share(8, "tp") * 128).evaluate({"tp": 3.0})
    (1.0, 384.0)
    """
    return symbol(share_name(size, axis))


def least(limit: int, length: str) -> Expr:
    """Return a length that is at most `limit`: what a window leaves of it.

    >>> least(128, "seq").evaluate({"seq": 4096.0}), (least(127, "kv") + 1).evaluate({"kv": 100.0})
    (128.0, 101.0)
    """
    return symbol(least_name(limit, length))


def evened(value: Dim) -> Dim:
    """Return the expression with every share as the plain quotient, as if all degrees divided.

    >>> evened(share(8, "tp") * 128)
    1024/tp
    """
    if not isinstance(value, Expr):
        return value
    found = {s: sh for s in value.factors if (sh := read_share(s))}
    return as_dim(value.substitute({s: as_expr(sh[0]) / symbol(sh[1]) for s, sh in found.items()}) if found else value)


def as_dim(value: Expr | int | float) -> Dim:
    """Return a plain `int` when the expression is a whole constant.

    >>> as_dim(symbol("tp") * 8 / symbol("tp"))
    8
    """
    expr = _as_expr(value)
    if not expr.terms:
        return 0
    if len(expr.terms) == 1 and expr.terms[0][0] == ():
        constant = expr.terms[0][1]
        return constant if isinstance(constant, int) else expr
    return expr


def as_expr(value: Dim | float) -> Expr:
    """Return the value as an expression."""
    return _as_expr(value)


def product(dims: Iterable[Dim]) -> Expr:
    """Multiply dimensions; the product of none is one."""
    number, rest = 1, None
    for d in dims:
        if isinstance(d, int):
            number *= d
        else:
            rest = d if rest is None else rest * d
    return _constant(number) if rest is None else rest * number


def total(exprs: Iterable[Dim]) -> Expr:
    """Add expressions; the sum of none is zero."""
    out: dict[Monomial, Coefficient] = {}
    for e in exprs:
        for m, c in e.terms if isinstance(e, Expr) else _constant_terms(e):
            out[m] = out.get(m, 0) + c
    return Expr(out)


def divide_exactly(value: Dim, divisor: Dim) -> Dim | None:
    """Return value / divisor when it is a polynomial with integer coefficients, else None.

    A divisor of several terms divides only itself here; nothing divides by zero.

    >>> divide_exactly(4096, 32), divide_exactly(4096, 3)
    (128, None)
    """
    d = _as_expr(divisor)
    if not d.terms:
        return None
    if len(d.terms) != 1:
        return 1 if _as_expr(value) == d else None
    quotient = _as_expr(value) / d
    return as_dim(quotient) if quotient.is_integral else None


def _print_term(m: Monomial, c: Coefficient) -> str:
    above = "*".join(_print_power(s, e) for s, e in m if e > 0)
    below = "".join("/" + _print_power(s, -e) for s, e in m if e < 0)
    if not above:
        return f"{c}{below}"
    return (above if c == 1 else f"{c}*{above}") + below


def _print_power(s: str, e: int) -> str:
    return s if e == 1 else f"{s}^{e}"


def _as_expr(value: Dim | float) -> Expr:
    return value if isinstance(value, Expr) else _constant(value)


def _hash(terms: Terms) -> int:
    if not terms:
        return hash(0)
    return hash(terms[0][1]) if len(terms) == 1 and terms[0][0] == () else hash(terms)


@lru_cache(maxsize=8192)
def _constant(value: Coefficient) -> Expr:
    return Expr._of(_constant_terms(value))


def _constant_terms(value: Coefficient) -> Terms:
    return (((), _tidy(value)),) if value != 0 else ()


def _replaced(name: str, env: Mapping[str, Dim]) -> Expr:
    if isinstance(name, Derived) and name not in env:
        return _as_expr(name.build(*(as_dim(arg.substitute(env)) for arg in name.args)))
    found, limited = read_share(name), read_least(name)
    of = found or limited
    if name in env or of is None or of[1] not in env:
        return _as_expr(env.get(name, symbol(name)))
    size, given = of[0], env[of[1]]
    if not isinstance(given, int):
        raise ValueError(f"'{name}' has a value only for a number of {of[1]}, not for '{given}'")
    return _constant(min(size, given) if limited else -(-size // given))


def _power(term: Expr, base: Expr, exponent: int) -> Expr:
    for _ in range(abs(exponent)):
        term = term * base if exponent > 0 else term / base
    return term


def _term(monomial: Monomial, coefficient: Coefficient) -> Terms:
    tidy = _tidy(coefficient)
    return ((monomial, tidy),) if tidy != 0 else ()


@lru_cache(maxsize=8192)
def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    exponents = dict(a)
    for s, e in b:
        exponents[s] = exponents.get(s, 0) + e
    return tuple(sorted(item for item in exponents.items() if item[1]))


def _over(a: Coefficient, b: Coefficient) -> Coefficient:
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    return a / b


def _tidy(c: Coefficient) -> Coefficient:
    return int(c) if isinstance(c, float) and c.is_integer() and abs(c) < 2**53 else c
