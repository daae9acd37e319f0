"""Expressions: evaluation respects the algebra, printing and parsing are each other's inverse."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slipstick.ir.errors import ParseError
from slipstick.ir.sizes.expr import (
    Coefficient,
    Expr,
    Monomial,
    Num,
    as_dim,
    as_expr,
    divide_exactly,
    product,
    symbol,
    total,
)
from slipstick.ir.sizes.expr_text import parse_expr

NAMES = ("batch", "seq", "tp", "dp")
A, B, TP = symbol("a"), symbol("b"), symbol("tp")

coefficients: st.SearchStrategy[Coefficient] = st.integers(-1000, 1000) | st.integers(-64000, 64000).map(
    lambda n: n / 64
)
whole = st.integers(-10_000, 10_000)
points = st.fixed_dictionaries({n: st.floats(0.5, 4) for n in NAMES})


def monomials(low: int, high: int) -> st.SearchStrategy[Monomial]:
    exponents = st.dictionaries(st.sampled_from(NAMES), st.integers(low, high).filter(bool), max_size=3)
    return exponents.map(lambda e: tuple(sorted(e.items())))


def exprs(low: int = -2, high: int = 3) -> st.SearchStrategy[Expr]:
    return st.dictionaries(monomials(low, high), coefficients, max_size=4).map(Expr)


single = st.builds(lambda m, c: Expr({m: c}), monomials(-2, 2), coefficients.filter(bool))


def size(e: Expr, env: dict[str, float]) -> float:
    """The sum of the sizes of the terms: what rounding errors are relative to."""
    return number(Expr({m: abs(c) for m, c in e.terms}).evaluate(env))


def number(value: Num) -> float:
    assert isinstance(value, float)
    return value


@given(exprs(), exprs(), points)
def test_evaluate_respects_plus_minus_and_times(x: Expr, y: Expr, env: dict[str, float]) -> None:
    a, b = number(x.evaluate(env)), number(y.evaluate(env))
    room = 1e-9 * (1 + size(x, env)) * (1 + size(y, env))
    assert number((x + y).evaluate(env)) == pytest.approx(a + b, abs=room)
    assert number((x - y).evaluate(env)) == pytest.approx(a - b, abs=room)
    assert number((x * y).evaluate(env)) == pytest.approx(a * b, abs=room)
    assert number((-x).evaluate(env)) == pytest.approx(-a, abs=room)


@given(exprs(), single, points)
def test_evaluate_respects_division_by_one_term(x: Expr, y: Expr, env: dict[str, float]) -> None:
    room = 1e-9 * (1 + size(x, env)) / size(y, env)
    assert number((x / y).evaluate(env)) == pytest.approx(number(x.evaluate(env)) / number(y.evaluate(env)), abs=room)


@given(exprs(), exprs(), exprs())
def test_ring_laws_hold_exactly_for_binary_fractions(x: Expr, y: Expr, z: Expr) -> None:
    # Coefficients are multiples of 1/64 below 1000, so products of three are exact in float64.
    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) * z == x * z + y * z
    assert (x * y) * z == x * (y * z)
    assert x - x == 0
    assert x * 1 == x == x + 0


@given(exprs(), exprs(0, 2), points)
def test_substitute_agrees_with_evaluate(x: Expr, y: Expr, env: dict[str, float]) -> None:
    assume(all(e > 0 for m, _ in x.terms for s, e in m if s == "seq"))
    inner = number(y.evaluate(env))
    room = 1e-9 * (1 + size(x, env)) * (1 + size(y, env)) ** 3
    replaced = number(x.substitute({"seq": y}).evaluate(env))
    assert replaced == pytest.approx(number(x.evaluate({**env, "seq": inner})), rel=1e-9, abs=room)


def test_substitute_takes_negative_powers_of_one_term_only() -> None:
    assert str((A / TP).substitute({"tp": B * 2})) == "0.5*a/b"
    assert (A / TP).substitute({"x": 3}) == A / TP
    with pytest.raises(ZeroDivisionError, match=r"can only divide by one term, not by 'b \+ a'"):
        (A / TP).substitute({"tp": A + B})


@given(exprs())
def test_print_and_parse_round_trip(x: Expr) -> None:
    assert parse_expr(str(x)) == x


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("0", as_expr(0)),
        ("-3", as_expr(-3)),
        ("-1*a", -A),
        ("0.125*a^2/tp^3", A * A * 0.125 / TP / TP / TP),
        ("-2.5/tp", as_expr(-2.5) / TP),
        ("1e-07*a + -4", A * 1e-7 - 4),
        ("1e+16", as_expr(1e16)),
        ("2*batch^2*seq/tp", symbol("batch") * symbol("batch") * symbol("seq") * 2 / TP),
    ],
)
def test_the_written_form(text: str, expr: Expr) -> None:
    assert parse_expr(text) == expr
    assert str(parse_expr(str(expr))) == str(expr)


@pytest.mark.parametrize(
    "text", ["", "a + ", "a - b", "a b", "2a", "a*", "/a", "a^", "a^b", "a**b", "?", "a^-1", "--a"]
)
def test_what_is_not_an_expression_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="is not an expression: cannot read"):
        parse_expr(text)


@given(st.dictionaries(monomials(0, 3), whole, max_size=4).map(Expr), monomials(0, 2), whole.filter(bool))
def test_a_product_divides_exactly_by_its_factor(x: Expr, m: Monomial, c: int) -> None:
    divisor = Expr({m: c})
    assert divide_exactly(as_dim(x * divisor), divisor) == as_dim(x)


@pytest.mark.parametrize(
    ("value", "divisor", "quotient"),
    [
        (A * 6, 4, None),  # 3/2 is not an integer
        (A, B, None),  # a/b is not a polynomial
        (A * B, B, A),
        (A + B, A + B, 1),
        (A + B, A + B * 2, None),
        (0, 7, 0),
        (5, 0, None),
        (0, 0, None),
    ],
)
def test_divide_exactly(value: int | Expr, divisor: int | Expr, quotient: int | Expr | None) -> None:
    assert divide_exactly(value, divisor) == quotient


def test_dividing_by_several_terms_or_by_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError, match="can only divide by one term, not by 'b"):
        _ = A / (A + B)
    with pytest.raises(ZeroDivisionError, match="not by '0'"):
        _ = A / 0


@given(coefficients)
def test_a_constant_equals_and_hashes_as_its_number(c: Coefficient) -> None:
    assert as_expr(c) == c
    assert hash(as_expr(c)) == hash(c)
    assert as_expr(c) in {c}


@given(st.lists(exprs(0, 2), max_size=4), points)
def test_total_and_product_of_many(xs: list[Expr], env: dict[str, float]) -> None:
    added, multiplied, room = 0.0, 1.0, 1.0
    for x in xs:
        added, multiplied = added + number(x.evaluate(env)), multiplied * number(x.evaluate(env))
        room *= 1 + size(x, env)
    assert number(total(xs).evaluate(env)) == pytest.approx(added, abs=1e-9 * room)
    assert number(product(xs).evaluate(env)) == pytest.approx(multiplied, abs=1e-9 * room)


def test_arrays_go_in_for_symbols() -> None:
    found = (A * 3 / TP + 1).evaluate({"a": np.array([2.0, 4.0]), "tp": np.array([1.0, 8.0])})
    assert np.array_equal(found, [7.0, 2.5])


def test_numbers_stand_on_either_side() -> None:
    assert 2 + A == A + 2
    assert 2 - A == -(A - 2)
    assert 2 * A == A + A
    assert A != "a"


def test_symbols_and_integrality() -> None:
    assert (A * B / TP + 1).symbols == {"a", "b", "tp"}
    assert (A * B + 1).is_integral
    assert not (A / TP).is_integral
    assert not (A / 2).is_integral


@pytest.mark.parametrize("given_value", [7, as_expr(7), as_expr(7.0), A * 7 / A])
def test_a_whole_constant_becomes_an_int(given_value: int | Expr) -> None:
    dim = as_dim(given_value)
    assert isinstance(dim, int)
    assert dim == 7


def test_what_is_no_whole_constant_stays() -> None:
    assert as_dim(as_expr(0.5)) == 0.5
    assert as_dim(A) is A
    assert as_dim(A - A) == 0
