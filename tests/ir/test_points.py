"""Distinct points of a plan table: few, complete, and each plan at its own."""

from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.plan import Plan, PlanTable
from slipstick.ir.points import Points

COLUMNS = ("tp", "dp", "mbs", "seq", "kv")
SMALL = st.integers(1, 4)


def plan(tp: int, dp: int, micro_batch: int, seq_len: int, kv_len: int) -> Plan:
    return Plan(num_gpus=tp * dp, tp=tp, dp=dp, micro_batch=micro_batch, seq_len=seq_len, kv_len=kv_len)


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
