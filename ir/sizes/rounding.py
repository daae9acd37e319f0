"""Sizes that are no polynomials: floor and ceiling of a quotient, a rest, the larger and the smaller of two, shares.

Strided convolutions, blocks of a fixed length and windows have them. They are exact: what divides is divided, the rest
is a symbol of its own whose value is worked out with the numbers of a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TypeGuard

from .expr import Derived, Dim, Expr, Monomial, as_dim, as_expr, divide_exactly, symbol
from .shares import least_name, read_share, share_name


def floor_div(above: Dim, below: Dim) -> Dim:
    """Return above / below rounded down; what divides is taken out, and a floor within a floor becomes one.

    >>> s = symbol("seq")
    >>> floor_div(17, 16), floor_div(s * 16 + 3, 16), floor_div(s + 127, 128)
    (1, seq, floor((seq+127)/128))
    >>> floor_div(floor_div(s + 3, 2) + 4, 2)
    floor((seq+3)/4) + 2
    """
    if isinstance(below, int) and isinstance(above, Expr):
        return _floor_by(above, below)
    if isinstance(above, int) and isinstance(below, int):
        return above // below
    exact = divide_exactly(above, below)
    return exact if exact is not None else as_dim(symbol(Derived(floor_div, (as_expr(above), as_expr(below)))))


def ceil_div(above: Dim, below: Dim) -> Dim:
    """Return above / below rounded up.

    >>> ceil_div(symbol("seq"), 16).evaluate({"seq": 33.0})
    3.0
    """
    return as_dim(as_expr(floor_div(as_expr(above) * -1, below)) * -1)


def modulo(above: Dim, below: Dim) -> Dim:
    """Return the rest of above / below, which has the sign of below.

    >>> modulo(symbol("seq") * 4 + 7, 4), modulo(symbol("seq"), 4).evaluate({"seq": 7.0})
    (3, 3.0)
    """
    return as_dim(as_expr(above) - as_expr(floor_div(above, below)) * below)


def larger(a: Dim, b: Dim) -> Dim:
    """Return the larger of two sizes.

    >>> larger(symbol("seq"), 8), larger(3, 8)
    (max(8;seq), 8)
    """
    return _one_of(a, b, larger, max)


def smaller(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two sizes.

    >>> smaller(symbol("seq"), 128).evaluate({"seq": 4096.0})
    128.0
    """
    return _one_of(a, b, smaller, min)


def _one_of(a: Dim, b: Dim, build: Callable[[Dim, Dim], Dim], plain: Callable[[int, int], int]) -> Dim:
    apart = as_dim(as_expr(a) - b)
    if isinstance(apart, int):  # one is larger by a number, whatever the symbols are
        return b if plain(apart, 0) == 0 else a
    first, second = sorted((as_expr(a), as_expr(b)), key=str)
    return symbol(Derived(build, (first, second)))


def _floor_by(above: Expr, below: int) -> Dim:
    """Floor of an expression over a number: whole multiples leave, common factors cancel, floors inside join."""
    if below < 0:
        above, below = above * -1, -below
    rest: dict[Monomial, int | float] = {}
    whole: dict[Monomial, int | float] = {}
    for monomial, coefficient in above.terms:
        is_whole = isinstance(coefficient, int) and all(power > 0 for _, power in monomial)
        quotient, left = divmod(coefficient, below) if is_whole else (0, coefficient)
        whole[monomial], rest[monomial] = (quotient, left) if not monomial or not left else (0, coefficient)
    return as_dim(_floor_of_rest(Expr(rest), below) + Expr(whole))


def _floor_of_rest(rest: Expr, below: int) -> Expr:
    if not rest.symbols:
        return as_expr(int(rest.evaluate({})) // below)
    if (joined := _joined(rest, below)) is not None:
        return as_expr(floor_div(*joined))
    coefficients = [c for _, c in rest.terms]
    if all(isinstance(c, int) for c in coefficients):
        common = gcd(below, *(int(c) for c in coefficients))
        rest, below = rest / common, below // common
    return symbol(Derived(floor_div, (rest, as_expr(below))))


def _joined(rest: Expr, below: int) -> tuple[Expr, int] | None:
    """`floor(e/n) + c` over m is `e + c n` over `n m`, in whole numbers."""
    constant = sum(c for monomial, c in rest.terms if not monomial)
    others = [term for term in rest.terms if term[0]]
    if len(others) != 1 or others[0][1] != 1 or len(others[0][0]) != 1 or not isinstance(constant, int):
        return None
    ((name, power),) = others[0][0]
    if power != 1 or not isinstance(name, Derived) or name.build is not floor_div:
        return None
    above, inner = name.args[0], as_dim(name.args[1])
    return (above + constant * inner, inner * below) if isinstance(inner, int) else None


__all__ = ["ceil_div", "floor_div", "larger", "modulo", "smaller"]


def share(size: int, axis: str) -> Expr:
    """Return size/axis rounded up: the largest share when whole things are distributed.

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

    >>> evened(share(8, "tp") * 128), evened(ceil_div(symbol("mbs") * 4, symbol("tp")))
    (1024/tp, 4*mbs/tp)
    """
    if not isinstance(value, Expr):
        return value
    found = {s: as_expr(sh[0]) / symbol(sh[1]) for s in value.factors if (sh := read_share(s))}
    found |= {s: s.args[0] / s.args[1] for s in value.factors if _is_rows_share(s)}
    return as_dim(value.substitute(found) if found else value)


def _is_rows_share(name: str) -> TypeGuard[Derived]:
    """Whether a symbol is a quotient by a degree, rounded."""
    return isinstance(name, Derived) and name.build is floor_div and not isinstance(as_dim(name.args[1]), int)
