"""Small Laurent polynomials over named symbols: the dimensions, FLOPs and bytes of a graph.

A dimension is an `int` or an `Expr`. Sharding divides a dimension by the symbol of a degree, so exponents may be
negative. That a degree divides is a constraint kept beside the graph; a size that the model itself rounds is a symbol
of its own (`ir/sizes/rounding.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Self, TypeAlias, Union

from ..records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A union, not text: records of machines look at their annotations.
Num: TypeAlias = Union[float, "NDArray[np.float64]"]
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
            terms = self.terms or (((), 0),)
            self._hash = hash(terms[0][1]) if len(terms) == 1 and terms[0][0] == () else hash(terms)
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
            return as_expr(other) if more else self
        out = dict(self.terms)
        for m, c in more:
            out[m] = out.get(m, 0) + c
        return Expr(out)

    def __neg__(self) -> Expr:
        """Negate every term."""
        return self * -1

    def __sub__(self, other: Dim | float) -> Expr:
        """Subtract."""
        return self + as_expr(other) * -1

    def __rsub__(self, other: Dim | float) -> Expr:
        """Subtract from a number."""
        return as_expr(other) - self

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
        divisor = as_expr(other)
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
        """The names this expression depends on; a derived size depends on what it follows from."""
        if self._symbols is None:
            self._symbols = frozenset[str]().union(*map(depends_on, self.factors))
        return self._symbols

    @property
    def factors(self) -> frozenset[str]:
        """The names as they are written, derived ones included."""
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

        A derived symbol follows its arguments.
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


@dataclass(frozen=True, slots=True)
class Derivation:
    """Way of deriving a size from others; `ir/sizes/rounding.py` has all of them.

    Attributes:
        form: how it is written, with a place for each argument.
        compute: its value, from those of the arguments.
        build: makes the expression again, from arguments that changed.
        instead: a symbol whose value, where there is one, is taken instead.
    """

    form: str
    compute: Callable[..., Num]
    build: Callable[..., Dim]
    instead: str = ""


class Derived(str):
    """A symbol that is written as what it stands for, without a space: `floor((seq+127)/128)`.

    An expression stays a polynomial: this is a symbol like any other, but its value follows from those of the symbols
    in its arguments, and it changes with them where these are substituted.

    Attributes:
        kind: how the value is derived.
        args: what it is derived from.
        symbols: the symbols that occur in these.
    """

    kind: Derivation
    args: tuple[Expr, ...]
    symbols: frozenset[str]

    def __new__(cls, text: str, kind: Derivation, args: tuple[Expr, ...]) -> Self:
        """Keep what the symbol stands for."""
        derived = super().__new__(cls, text)
        derived.kind, derived.args = kind, args
        derived.symbols = frozenset[str]().union(*(arg.symbols for arg in args))
        return derived

    def __getnewargs__(self) -> tuple[str, Derivation, tuple[Expr, ...]]:  # type: ignore[override]
        """Return what a copy is made of."""
        return str(self), self.kind, self.args

    def value(self, env: Mapping[str, Num]) -> Num:
        """Return the value; numbers or arrays."""
        if self.kind.instead in env:
            return env[self.kind.instead]
        return self.kind.compute(*(arg.evaluate(env) for arg in self.args))


def depends_on(name: str) -> frozenset[str]:
    """Return the symbols whose values a symbol needs: those that a derived one follows from, or itself."""
    return name.symbols if isinstance(name, Derived) else frozenset((name,))


def number_of(name: str, env: Mapping[str, Num]) -> Num:
    """Return the value of a symbol; that of a derived one, if it is not given, follows from what it needs."""
    if isinstance(name, Derived) and name not in env:
        return name.value(env)
    return env[name]


# A graph has few symbols. Names of one text are one object, be they of an axis or of a text: they are compared often.
@lru_cache(maxsize=4096)
def symbol(name: str) -> Expr:
    """Return the expression that is one symbol."""
    return Expr._of(((((name if isinstance(name, Derived) else intern(str(name)), 1),), 1),))


def as_dim(value: Expr | int | float) -> Dim:
    """Return a plain `int` when the expression is a whole constant.

    >>> as_dim(symbol("tp") * 8 / symbol("tp"))
    8
    """
    expr = as_expr(value)
    if not expr.terms:
        return 0
    if len(expr.terms) == 1 and expr.terms[0][0] == ():
        constant = expr.terms[0][1]
        return constant if isinstance(constant, int) else expr
    return expr


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

    A divisor of several terms divides only its own multiples by one term; nothing divides by zero.

    >>> divide_exactly(4096, 32), divide_exactly(4096, 3), divide_exactly(symbol("s") * 8 + 8, symbol("s") + 1)
    (128, None, 8)
    """
    v, d = as_expr(value), as_expr(divisor)
    if not d.terms:
        return None
    if len(d.terms) != 1:
        least = Expr(dict(d.terms[:1]))
        tried = (Expr({monomial: number}) / least for monomial, number in v.terms)
        found = next((q for q in tried if q * d == v), None)
        return as_dim(found) if found is not None and found.is_integral else None
    quotient = v / d
    return as_dim(quotient) if quotient.is_integral else None


def _print_term(m: Monomial, c: Coefficient) -> str:
    above = "*".join(_print_power(s, e) for s, e in m if e > 0)
    below = "".join("/" + _print_power(s, -e) for s, e in m if e < 0)
    if not above:
        return f"{c}{below}"
    return (above if c == 1 else f"{c}*{above}") + below


def _print_power(s: str, e: int) -> str:
    return s if e == 1 else f"{s}^{e}"


def as_expr(value: Dim | float) -> Expr:
    """Return the value as an expression."""
    return value if isinstance(value, Expr) else _constant(value)


@lru_cache(maxsize=8192)
def _constant(value: Coefficient) -> Expr:
    return Expr._of(_constant_terms(value))


def _constant_terms(value: Coefficient) -> Terms:
    return (((), _tidy(value)),) if value != 0 else ()


def _replaced(name: str, env: Mapping[str, Dim]) -> Expr:
    if isinstance(name, Derived) and name not in env:
        return as_expr(name.kind.build(*(as_dim(arg.substitute(env)) for arg in name.args)))
    return as_expr(env.get(name, symbol(name)))


def _power(term: Expr, base: Expr, exponent: int) -> Expr:
    for _ in range(abs(exponent)):
        term = term * base if exponent > 0 else term / base
    return term


def _term(monomial: Monomial, coefficient: Coefficient) -> Terms:
    return ((monomial, tidy),) if (tidy := _tidy(coefficient)) != 0 else ()


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
