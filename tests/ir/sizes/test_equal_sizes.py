"""Equal sizes are equal expressions: expressions of one value at many points are one, of others are others."""

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slipstick.ir.sizes.expr import Dim, Expr, Num, as_expr, symbol
from slipstick.ir.sizes.expr_text import parse_expr
from slipstick.ir.sizes.rounding import ceil_div, floor_div, larger, smaller
from slipstick.ir.sizes.shares import without_lone

Values = NDArray[np.int64]
# An expression, and its values as whole numbers of numpy give them.
Size = tuple[Dim, Values]

NEAR, FAR = 200, 20_000
_RANDOM = np.random.default_rng(0)
POINTS: dict[str, Values] = {
    **{name: _RANDOM.integers(0, 60, FAR) for name in ("seq", "batch")},
    **{name: _RANDOM.integers(1, 12, FAR) for name in ("tp", "dp")},
}
ENV: dict[str, Num] = {name: values.astype(np.float64) for name, values in POINTS.items()}
NEAR_ENV: dict[str, Num] = {name: values[:NEAR].astype(np.float64) for name, values in POINTS.items()}
SEQ, BATCH, TP, DP = ((symbol(name), POINTS[name]) for name in ("seq", "batch", "tp", "dp"))
ONE = (as_expr(1), np.ones(FAR, dtype=np.int64))


def times(*sizes: tuple[Expr, Values]) -> tuple[Expr, Values]:
    expr, values = ONE
    for other, more in sizes:
        expr, values = expr * other, values * more
    return expr, values


TERMS = (ONE, SEQ, BATCH, times(SEQ, BATCH))
Build = Callable[[Dim, Dim], Dim]
Plain = Callable[[Values, Values], Values]
ROUNDED: list[tuple[Build, Plain]] = [(floor_div, lambda a, b: a // b), (ceil_div, lambda a, b: -(-a // b))]
CHOSEN: list[tuple[Build, Plain]] = [(larger, np.maximum), (smaller, np.minimum)]


@st.composite
def sums(draw: st.DrawFn) -> Size:
    """Return a number of each length and of their product, and a constant."""
    expr, values = as_expr(0), np.zeros(FAR, dtype=np.int64)
    for term, of_term in TERMS:
        number = draw(st.sampled_from([0, 0, 1, 1, -1, 2, 3, -4, 6]) | st.integers(-9, 9))
        expr, values = expr + term * number, values + of_term * number
    return expr, values


@st.composite
def quotients(draw: st.DrawFn) -> Size:
    """Return a rounded quotient by a number, by degrees, or by numbers one after another."""
    expr, values = draw(sums())
    (build, plain), number = draw(st.sampled_from(ROUNDED)), draw(st.integers(1, 6))
    degree, degrees = times(*draw(st.sampled_from([(), (TP,), (TP, DP)])))
    size, floors = build(expr, degree * number), plain(values, degrees * number)
    if degree != 1 or draw(st.booleans()):
        return size, floors
    (build, plain), number, (more, extra) = draw(st.sampled_from(ROUNDED)), draw(st.integers(-6, -1)), draw(sums())
    return build(as_expr(size) + more, number), plain(floors + extra, np.full(FAR, number))


@st.composite
def choices(draw: st.DrawFn) -> Size:
    """Return the larger or smaller of two lengths or products, each with a constant and both by a number."""
    build, plain = draw(st.sampled_from(CHOSEN))
    number, sides = draw(st.integers(1, 3)), list[tuple[Expr, Values]]()
    for _ in range(2):
        expr, values = draw(
            st.sampled_from([(as_expr(0), 0 * ONE[1]), *TERMS[1:], (SEQ[0] + BATCH[0], SEQ[1] + BATCH[1])])
        )
        constant = draw(st.integers(0, 9))
        sides.append(((expr + constant) * number, (values + constant) * number))
    (first, values), (second, others) = sides
    return build(first, second), plain(values, others)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[Expr, Values]:
    expr, values = draw(quotients() | choices())
    number = draw(st.integers(1, 3))
    return as_expr(expr) * number, values * number


@given(st.lists(sizes(), min_size=24, max_size=24))
def test_sizes_are_equal_expressions_if_and_only_if_they_have_equal_values(drawn: list[tuple[Expr, Values]]) -> None:
    for expr, values in drawn:
        assert np.array_equal(np.broadcast_to(expr.evaluate(NEAR_ENV), NEAR), values[:NEAR])
        assert parse_expr(str(expr)) == expr
    compared = [(expr, values) for expr, values in drawn if without_lone(expr) == expr]
    for i, (expr, values) in enumerate(compared):
        for other, of_other in compared[:i]:
            equal = np.array_equal(values[:NEAR], of_other[:NEAR]) and np.array_equal(values, of_other)
            assert equal == (expr == other), (expr, other)
