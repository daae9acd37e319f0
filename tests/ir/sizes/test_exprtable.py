"""A table of expressions gives what each expression gives alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.sizes.expr import Coefficient, Expr, Monomial, as_expr, symbol
from slipstick.ir.sizes.exprtable import ExprTable

NAMES = ("mbs", "seq", "tp")


def monomials() -> st.SearchStrategy[Monomial]:
    exponents = st.dictionaries(st.sampled_from(NAMES), st.integers(-2, 2).filter(bool))
    return exponents.map(lambda e: tuple(sorted(e.items())))


coefficients: st.SearchStrategy[Coefficient] = st.integers(-50, 50) | st.floats(-50, 50)
exprs = st.dictionaries(monomials(), coefficients, max_size=4).map(Expr)
columns = st.lists(st.floats(0.5, 8), min_size=3, max_size=3).map(np.array)


@given(st.lists(exprs, max_size=6), st.fixed_dictionaries({"mbs": columns, "seq": st.floats(0.5, 8), "tp": columns}))
def test_rows_equal_single_expressions(rows: list[Expr], env: dict[str, np.ndarray | float]) -> None:
    found = ExprTable.of(rows).evaluate(env, 3)
    assert found.shape == (len(rows), 3)
    for row, expr in zip(found, rows, strict=True):
        assert row == pytest.approx(np.broadcast_to(expr.evaluate(env), 3), rel=1e-9, abs=1e-9 * 4 * 50 * 8**6)


def test_equal_monomials_are_shared() -> None:
    x = symbol("x")
    table = ExprTable.of([x * 2 + 1, x * 5, as_expr(3)])
    assert table.monomials == ((), (("x", 1),))
    assert table.evaluate({"x": 3.0}, 1).tolist() == [[7], [15], [3]]
    assert table.symbols == {"x"}


def test_integer_columns_take_negative_powers() -> None:
    table = ExprTable.of([symbol("seq") / symbol("tp")])
    assert table.evaluate({"seq": 4096, "tp": np.array([1, 2, 8])}, 3).tolist() == [[4096, 2048, 512]]


def test_zeros_and_nothing() -> None:
    assert ExprTable.of([as_expr(0)]).evaluate({}, 2).tolist() == [[0, 0]]
    assert ExprTable.of([]).evaluate({}, 2).shape == (0, 2)
