"""Distinct points of a plan table: few, complete, and each plan at its own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.plan import Family, Plan, PlanTable, make_plan
from slipstick.ir.sizes.points import Points

COLUMNS = ("tp", "dp", "mbs", "seq", "kv")
SMALL = st.integers(1, 4)


def plan(tp: int, dp: int, micro_batch: int, seq_len: int, kv_len: int) -> Plan:
    return make_plan(num_gpus=tp * dp, tp=tp, micro_batch=micro_batch, seq_len=seq_len, kv_len=kv_len, family=Family())


PLANS = st.lists(st.builds(plan, SMALL, SMALL, SMALL, SMALL, SMALL), min_size=1, max_size=12)


@given(PLANS, st.sets(st.sampled_from(COLUMNS)))
def test_every_plan_finds_its_values_and_no_point_is_twice(plans: list[Plan], symbols: set[str]) -> None:
    table = PlanTable.of(plans)
    values, point = Points(table).of(symbols)
    assert set(values) == symbols
    for symbol, column in values.items():
        assert list(column[point]) == list(table.columns[symbol])
    wanted = {tuple(table.columns[s][i] for s in sorted(symbols)) for i in range(len(plans))}
    found = {tuple(values[s][i] for s in sorted(symbols)) for i in set(point)}
    assert found == wanted
    assert int(point.max()) + 1 == len(wanted)


def test_a_column_that_differs_elsewhere_costs_nothing() -> None:
    plans = [plan(tp, dp, 1, 128, 0) for tp in (1, 2) for dp in (1, 2, 4, 8)]
    points = Points(PlanTable.of(plans))
    # Eight plans, but only two tensor-parallel degrees.
    values, point = points.of(("tp", "seq"))
    assert list(values["tp"]) == [1, 2]
    assert list(point) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_no_symbols_are_one_point() -> None:
    values, point = Points(PlanTable.of([plan(1, 1, 1, 1, 0), plan(2, 1, 1, 1, 0)])).of(())
    assert (dict(values), list(point)) == ({}, [0, 0])


def test_the_same_set_is_searched_once() -> None:
    points = Points(PlanTable.of([plan(1, 1, 1, 1, 0), plan(2, 1, 1, 1, 0)]))
    assert points.of(("tp", "dp"))[1] is points.of(("dp", "tp"))[1]


@given(PLANS, st.sets(st.sampled_from(COLUMNS)), st.data())
def test_points_of_some_plans_are_those_that_they_have(
    plans: list[Plan], symbols: set[str], data: st.DataObject
) -> None:
    table = PlanTable.of(plans)
    points = Points(table)
    points.of(symbols)
    rows = np.array(data.draw(st.lists(st.integers(0, len(plans) - 1), min_size=1, unique=True)), dtype=np.intp)
    some = table.part(rows)
    for asked in (symbols, {"tp", "mbs"}):
        values, point = points.part(some, rows).of(asked)
        for symbol in asked:
            assert list(values[symbol][point]) == list(some.columns[symbol])
        assert set(point) == set(range(int(point.max()) + 1))


@given(st.lists(st.sampled_from([0.5, 1.0, 3.0, 1e6, 1e12, 8192.0]), min_size=1, max_size=40), st.booleans())
def test_points_stand_in_the_order_of_their_values(lengths: list[float], many: bool) -> None:
    lengths = lengths * 30 if many else lengths
    column, ones = np.array(lengths), np.ones(len(lengths))
    table = PlanTable(Family(), ones, ones, ones, ones, ones, column, np.zeros(len(lengths)))
    values, point = Points(table).of(("seq",))
    assert list(values["seq"]) == sorted(set(lengths))
    assert list(values["seq"][point]) == lengths
