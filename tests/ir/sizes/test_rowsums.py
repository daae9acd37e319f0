"""Weighted sums of rows are those of a matrix product, and the same to the bit for any number of columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from slipstick.ir.sizes.rowsums import RowSums

ROWS = 6
NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
sums = st.lists(st.dictionaries(st.integers(0, ROWS - 1), NUMBERS, max_size=ROWS), min_size=1, max_size=5)
tables = st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=ROWS, max_size=ROWS).map(np.array)


@given(sums, tables)
def test_sums_are_a_matrix_product(given_sums: list[dict[int, float]], values: np.ndarray) -> None:
    matrix = np.array([[s.get(row, 0.0) for row in range(ROWS)] for s in given_sums])
    assert_allclose(RowSums.of(given_sums).of_rows(values), matrix @ values, rtol=1e-9, atol=1e-2)


@given(sums, tables)
def test_one_column_alone_is_that_column_among_others(given_sums: list[dict[int, float]], values: np.ndarray) -> None:
    compiled = RowSums.of(given_sums)
    together = compiled.of_rows(values)
    alone = np.hstack([compiled.of_rows(values[:, k : k + 1]) for k in range(values.shape[1])])
    assert (together == alone).all()


def test_no_sums_and_no_rows() -> None:
    assert RowSums.of([]).of_rows(np.ones((2, 3))).shape == (0, 3)
    assert RowSums.of([{}]).of_rows(np.ones((0, 3))).tolist() == [[0.0, 0.0, 0.0]]
