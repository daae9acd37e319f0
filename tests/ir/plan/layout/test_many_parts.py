from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.plan.layout.many_parts import many_parts
from slipstick.ir.plan.layout.partition import Balance

COSTS = st.one_of(st.floats(0.01, 1.0), st.sampled_from([0.0, 0.1, 0.3, 1.0]))


@given(st.data())
def test_rows_are_cut_as_each_is_alone(data: st.DataObject) -> None:
    num = data.draw(st.integers(2, 24))
    parts = data.draw(st.integers(2, num))
    each = st.one_of(COSTS.map(lambda cost: [cost] * num), st.lists(COSTS, min_size=num, max_size=num))
    rows = data.draw(st.lists(st.tuples(each, st.floats(0.0, 3.0), st.floats(0.0, 3.0)), min_size=1, max_size=4))
    costs, first, last = (np.array(column) for column in zip(*rows, strict=True))
    found = many_parts(costs, first, last, parts)
    assert found.tolist() == [list(Balance(row, begin, end).sizes(parts)) for row, begin, end in rows]


def test_a_row_of_blocks_that_differ_much_is_cut_by_itself() -> None:
    draw = np.random.default_rng(3)
    costs = draw.random((3, 60)) ** 8
    found = many_parts(costs, np.zeros(3), np.full(3, 4.0), 7)
    assert found.tolist() == [list(Balance(row, 0.0, 4.0).sizes(7)) for row in costs.tolist()]
