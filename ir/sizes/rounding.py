"""Sizes that are no polynomials: quotients rounded up or down, the larger and the smaller of two, loads of ranks.

Strided convolutions, blocks of a fixed length, windows and uneven shards have them. They are exact: what divides is
divided, the rest is a symbol of its own whose value is worked out with the numbers of a plan.

Equal sizes are equal expressions, for lengths of 0 or more and degrees of 1 or more, where each is a number times one
rounded quotient, larger or smaller size. This does not cover

- identities of several: `floor(s/2) + floor((s+1)/2)` is not `s`, `max(8;s) + min(8;s)` is not `s + 8`, and
  `floor(3*s/2)` is not `floor(s/2) + s`;
- powers below a floor, since squares leave few rests, and divisors of several terms;
- a larger or smaller size within another, and subtracted sizes within these;
- `share(1, "tp")`, which is 1, and says that each rank holds a copy.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from operator import floordiv
from typing import TypeGuard

from .expr import Derivation, Derived, Dim, Expr, Num, Terms, as_dim, as_expr, divide_exactly, product, symbol

# Symbols that are no whole numbers: rows an expert has room for over the mean, and rows of the busiest rank over the
# mean, where that is a number of its own.
CAPACITY, IMBALANCE = "cf", "imb"
_SCALE = 10_000
_LOWER = re.compile(r"[a-z]+")
_PAIR = re.compile(r"(ceil(?=_[1-9])|least)_([0-9]+)_([a-z]+)")
_BUSY = re.compile(r"busy_([a-z]+(?:x[a-z]+)*)((?:_[0-9]+at[0-9]+)+)")


def floor_div(above: Dim, below: Dim) -> Dim:
    """Return above / below rounded down; what divides is taken out, and a floor within a floor becomes one.

    >>> s = symbol("seq")
    >>> floor_div(17, 16), floor_div(s * 16 + 3, 16), floor_div(s + 127, 128)
    (1, seq, floor((seq+127)/128))
    >>> floor_div(floor_div(s + 3, 2) + 4, 2), floor_div(s * 6 + 5, 4)
    (floor((seq+3)/4) + 2, floor(3*seq/2) + 1)
    """
    if isinstance(above, int) and isinstance(below, int):
        return above // below
    exact = divide_exactly(above, below)
    if exact is not None:
        return exact
    top, bottom = as_expr(above), as_expr(below)
    if bottom.terms[-1][1] < 0:
        top, bottom = -top, -bottom
    if len(bottom.terms) > 1:
        return as_dim(symbol(_derived("floor", top, bottom)))
    whole, rest = _without_multiples(top, bottom)
    return as_dim(whole + _floor_of_rest(rest, bottom))


def ceil_div(above: Dim, below: Dim) -> Dim:
    """Return above / below rounded up.

    >>> ceil_div(symbol("seq"), 16), ceil_div(8, symbol("tp")), ceil_div(symbol("mbs") * 4, symbol("tp"))
    (floor((seq+15)/16), ceil_8_tp, -1*floor(-4*mbs/tp))
    """
    return as_dim(-as_expr(floor_div(as_dim(-as_expr(above)), below)))


def modulo(above: Dim, below: Dim) -> Dim:
    """Return the rest of above / below, which has the sign of below.

    >>> modulo(symbol("seq") * 4 + 7, 4), modulo(symbol("seq"), 4).evaluate({"seq": 7.0})
    (3, 3.0)
    """
    return as_dim(as_expr(above) - as_expr(floor_div(above, below)) * below)


def larger(a: Dim, b: Dim) -> Dim:
    """Return the larger of two sizes.

    >>> larger(symbol("seq"), 8), larger(symbol("seq") + 1, 8), larger(3, 8)
    (max(8;seq), max(7;seq) + 1, 8)
    """
    return _one_of(a, b, "max")


def smaller(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two sizes, such as a length that a window limits.

    >>> smaller(symbol("seq"), 128), smaller(symbol("seq"), symbol("kv"))
    (least_128_seq, min(kv;seq))
    """
    return _one_of(a, b, "min")


@lru_cache(maxsize=4096)
def share(size: int, axis: str) -> Expr:
    """Return size/axis rounded up: the largest share when whole things are distributed.

    >>> share(8, "tp").evaluate({"tp": 16.0}), (share(8, "tp") * 128).evaluate({"tp": 3.0})
    (1.0, 384.0)
    """
    return as_expr(ceil_div(size, symbol(axis)))


def busiest(axes: Sequence[str], ranks: Sequence[int], loads: Sequence[float]) -> Expr:
    """Return the load of the busiest rank over the mean, of so many ranks on some axes.

    Of ranks between two known numbers it is that of the fewer. A number of `imb` overrules it, as of a load that people
    say, or 1 for the mean of all ranks.

    >>> load = busiest(("tp", "ep"), (1, 8), (1.0, 1.325))
    >>> load, load.evaluate({"tp": 2.0, "ep": 4.0}), load.evaluate({"tp": 2.0, "ep": 4.0, "imb": 1.0})
    (busy_tpxep_1at10000_8at13250, 1.325, 1.0)
    """
    numbers = [n for num, load in zip(ranks, loads, strict=True) for n in (num, round(_SCALE * load))]
    return as_expr(_busiest(product(map(symbol, axes)), *numbers))


@lru_cache(maxsize=8192)
def named(name: str) -> Expr:
    """Return what a name in a text stands for: a symbol, or a derived size that is written like one.

    >>> named("ceil_8_tp") == share(8, "tp"), named("ceil_tp").symbols
    (True, frozenset({'ceil_tp'}))
    """
    if match := _PAIR.fullmatch(name):
        build = ceil_div if match[1] == "ceil" else smaller
        return as_expr(build(int(match[2]), symbol(match[3])))
    if match := _BUSY.fullmatch(name):
        pairs = [part.split("at") for part in match[2][1:].split("_")]
        return busiest(match[1].split("x"), [int(n) for n, _ in pairs], [int(load) / _SCALE for _, load in pairs])
    return symbol(name)


def _derived(kind: str, *args: Expr) -> Derived:
    return Derived(KINDS[kind].form.format(*map(_unspaced, args)), KINDS[kind], args)


def _unspaced(arg: Expr) -> str:
    text = str(arg).replace(" ", "")
    return f"({text})" if any(sign in text for sign in "+/") else text


def _without_multiples(above: Expr, below: Expr) -> tuple[Expr, Expr]:
    """Split a sum into what its terms that divide give, and the rest."""
    whole, number = as_expr(0), as_dim(below)
    for monomial, coefficient in above.terms:
        term = Expr({monomial: coefficient})
        if _is_whole(term):
            is_number = isinstance(number, int) and not monomial
            whole = whole + (floor_div(as_dim(term), number) if is_number else divide_exactly(term, below) or 0)
    return whole, above - whole * below


def _floor_of_rest(rest: Expr, below: Expr) -> Expr:
    """Floor of a quotient of which no term divides, in the one form of those that are equal."""
    if not rest.symbols and not below.symbols:
        return as_expr(int(rest.evaluate({})) // int(below.evaluate({})))
    if not (_is_whole(rest) and _is_whole(below)):
        return symbol(_derived("floor", rest, below))
    if (joined := _joined(rest, below)) is not None:
        return as_expr(floor_div(*joined))
    rest, below = _cancelled(rest, below)
    if not rest.terms or (rest == -1 and not _is_name(below)):
        return rest
    constant = _constant(rest)
    # Of the two forms, floor(e/n) and -floor((n-1-e)/n), by a number the one that starts with a plus; by a degree the
    # one with no constant to subtract, but of a constant alone the one that rounds up.
    turns = constant < 0 if rest.symbols else constant > 0
    if not below.symbols:
        turns = rest.terms[-1][1] < 0
    if turns:
        return -as_expr(floor_div(below - 1 - rest, as_dim(below)))
    if not rest.symbols and _is_name(below):
        return -symbol(_derived("ceil", -rest, below))
    return symbol(_derived("floor", rest, below))


def _joined(rest: Expr, below: Expr) -> tuple[Expr, Dim] | None:
    """Return `floor(e/n) + c` over m as `e + c n` over `n m`, where one of the terms is such a floor."""
    single = [(m[0][0], c) for m, c in rest.terms if len(m) == 1 and m[0][1] == 1 and abs(c) == 1]
    floors = [(s, c) for s, c in single if _is_floor(s)]
    if below.symbols or len(floors) != 1:
        return None
    name, sign = floors[0]
    above, inner = name.args
    return (rest - symbol(name) * sign) * inner + (above if sign > 0 else inner - 1 - above), as_dim(inner * below)


def _is_floor(name: str) -> TypeGuard[Derived]:
    """Whether a symbol is a quotient by a number, rounded down."""
    return isinstance(name, Derived) and name.kind is KINDS["floor"] and not name.args[1].symbols


def _cancelled(rest: Expr, below: Expr) -> tuple[Expr, Expr]:
    """Divide by what a divisor has in common with all terms but the constant, which is rounded down."""
    constant = _constant(rest)
    common = _common_factor((rest - constant).terms + below.terms)
    number = int(common.terms[0][1])
    common = as_expr(number) if constant else common
    return (rest - constant) / common + constant // number, below / common


def _constant(value: Expr) -> int:
    return int(sum(c for monomial, c in value.terms if not monomial))


def _common_factor(terms: Terms) -> Expr:
    """Return the largest number and the powers that all terms have, of symbols that are not negative."""
    numbers = [c for _, c in terms]
    number = gcd(*(c for c in numbers if isinstance(c, int))) if all(isinstance(c, int) for c in numbers) else 1
    powers = {s: [dict(m).get(s, 0) for m, _ in terms] for s, _ in terms[0][0] if _is_positive(symbol(s))}
    common = ((s, max(min(es), 0) + min(max(es), 0)) for s, es in powers.items())  # none of two signs
    return Expr({tuple((s, e) for s, e in common if e): number})


def _one_of(a: Dim, b: Dim, kind: str) -> Dim:
    """Compare what one has more than the other, and add what both have."""
    apart = as_expr(a) - b
    more = Expr({m: c for m, c in apart.terms if c > 0})
    less = more - apart
    if (not less.terms and _is_positive(more)) or (not more.terms and _is_positive(less)):
        return a if (kind == "max") == bool(more.terms) else b
    factor = _common_factor(more.terms + less.terms)
    first, second = sorted((more / factor, less / factor), key=str)
    if kind == "min" and first.is_integral and not first.symbols and _is_name(second):
        kind = "least"
    return as_dim(as_expr(a) - more + symbol(_derived(kind, first, second)) * factor)


def _is_positive(value: Expr) -> bool:
    """Whether no term can be negative."""
    args = (arg for s in value.factors if isinstance(s, Derived) for arg in s.args)
    return all(c > 0 for _, c in value.terms) and all(map(_is_positive, args))


def _is_whole(value: Expr) -> bool:
    """Whether whole numbers for the symbols give whole numbers."""
    derived = (s for s in value.factors if isinstance(s, Derived) and s.kind not in ROUNDED)
    has_fractions = not value.is_integral or not value.factors.isdisjoint((CAPACITY, IMBALANCE))
    return not has_fractions and all(s.kind is not KINDS["busy"] and all(map(_is_whole, s.args)) for s in derived)


def _is_name(value: Expr) -> bool:
    """Whether a size is one symbol in lower case, which names of derived sizes may contain."""
    return _LOWER.fullmatch(str(value)) is not None


def _ceil(count: Num, degree: Num) -> Num:
    return -(-count // degree)


def _max(a: Num, b: Num) -> Num:
    if isinstance(a, float) and isinstance(b, float):
        return max(a, b)
    import numpy as np  # of plans in a table alone, which have loaded it

    return np.maximum(a, b)


def _min(a: Num, b: Num) -> Num:
    return -_max(-a, -b)


def _load(num: Num, *numbers: float) -> Num:
    """Return the load of the busiest of so many ranks."""
    ranks, loads = numbers[::2], [load / _SCALE for load in numbers[1::2]]
    if isinstance(num, int | float):
        return loads[max(bisect_right(ranks, num) - 1, 0)]
    import numpy as np  # of plans in a table alone, which have loaded it

    return np.array(loads)[np.maximum(np.searchsorted(np.array(ranks), num, side="right") - 1, 0)]


def _busiest(num: Dim, *numbers: int) -> Dim:
    """Return the load of a number of ranks; a factor of the degrees is taken out of the numbers that are known."""
    if isinstance(num, int):
        return as_dim(float(_load(num, *numbers)))
    ((axes, factor),) = num.terms
    loads = {-(-ranks // int(factor)): load for ranks, load in zip(numbers[::2], numbers[1::2], strict=True)}
    names = sorted((axis for axis, power in axes for _ in range(power)), reverse=True)  # those within others first
    text = f"busy_{'x'.join(names)}" + "".join(f"_{ranks}at{load}" for ranks, load in loads.items())
    args = (num / factor, *(as_expr(number) for pair in loads.items() for number in pair))
    return symbol(Derived(text, KINDS["busy"], args))


# Every way of deriving a size. Those with brackets are read as calls, others as names.
KINDS = {
    "ceil": Derivation("ceil_{}_{}", _ceil, ceil_div),
    "floor": Derivation("floor({}/{})", floordiv, floor_div),
    "least": Derivation("least_{}_{}", _min, smaller),
    "min": Derivation("min({};{})", _min, smaller),
    "max": Derivation("max({};{})", _max, larger),
    "busy": Derivation("busy_{}", _load, _busiest, IMBALANCE),
}
ROUNDED = (KINDS["ceil"], KINDS["floor"])
