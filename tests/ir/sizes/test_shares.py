"""The largest share of things distributed: a symbol whose value is a degree's, wherever expressions are evaluated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.graph import Constraint
from slipstick.ir.placement import TP
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.plan.divisibility import suits
from slipstick.ir.sizes.expr import as_dim, as_expr, symbol
from slipstick.ir.sizes.expr_text import parse_expr
from slipstick.ir.sizes.exprtable import ExprTable
from slipstick.ir.sizes.points import Points
from slipstick.ir.sizes.rounding import busiest, ceil_div, named, share, smaller
from slipstick.ir.sizes.shares import evened, is_imbalance, read_share, smallest_share

SIZES, DEGREES = st.integers(1, 10**7), st.integers(1, 10**4)


@given(SIZES, DEGREES)
def test_a_share_is_rounded_up(size: int, degree: int) -> None:
    assert share(size, "tp").evaluate({"tp": float(degree)}) == math.ceil(size / degree)
    assert share(size, "tp").substitute({"tp": degree}) == math.ceil(size / degree)


@given(SIZES, DEGREES)
def test_the_largest_and_the_smallest_share_are_those_of_a_list_cut_into_chunks(size: int, degree: int) -> None:
    full = math.ceil(size / degree)
    shares = [min(full, size - start) for start in range(0, size, full)]
    shares += [0] * (degree - len(shares))
    assert (max(shares), min(shares)) == (full, smallest_share(size, degree))


@given(SIZES, DEGREES)
def test_where_the_degree_divides_a_share_is_the_quotient(size: int, degree: int) -> None:
    even = share(size * degree, "tp")
    assert even.evaluate({"tp": float(degree)}) == size
    assert evened(even * 3) == as_expr(size * degree * 3) / symbol("tp")


def test_a_share_depends_on_its_axis_and_prints_as_it_is_read() -> None:
    dim = share(8, "tp") * 128 + symbol("seq")
    assert (sorted(dim.symbols), sorted(dim.factors)) == (["seq", "tp"], ["ceil_8_tp", "seq"])
    assert str(dim) == "seq + 128*ceil_8_tp"
    assert parse_expr(str(dim)) == dim
    assert [read_share(name) for name in sorted(dim.factors)] == [(8, "tp"), None]


@pytest.mark.parametrize("name", ["tp", "ceil_tp", "ceil_0_tp", "ceil_8_", "ceil_8_tp_dp", "floor_8_tp"])
def test_other_symbols_are_no_shares(name: str) -> None:
    assert named(name) == symbol(name)
    assert read_share(next(iter(named(name).factors))) is None


def test_an_axis_with_a_share_becomes_a_number_or_other_axes() -> None:
    assert as_dim((share(8, "tp") * 128).substitute({"tp": 16})) == 128
    assert share(8, "tp").substitute({"tp": symbol("dp")}) == share(8, "dp")
    both = share(8, "tp").substitute({"tp": symbol("tp") * symbol("cp")})
    assert both.evaluate({"tp": 2.0, "cp": 3.0}) == 2


def test_a_size_is_one_symbol_whoever_builds_it() -> None:
    assert ceil_div(8, symbol("tp")) == share(8, "tp") == parse_expr("ceil_8_tp")
    assert smaller(symbol("seq"), 128) == parse_expr("least_128_seq") == parse_expr("min(128;seq)")
    assert smaller(symbol("seq") + 1, 128) == as_expr(smaller(127, symbol("seq"))) + 1


def test_the_load_of_the_busiest_rank_follows_its_axes_unless_it_is_given() -> None:
    load = busiest(("ep", "tp"), (1, 8), (1.0, 1.325))
    assert (str(load), sorted(load.symbols)) == ("busy_tpxep_1at10000_8at13250", ["ep", "tp"])
    assert parse_expr(str(load)) == load == busiest(("tp", "ep"), (1, 8), (1.0, 1.325))
    assert all(map(is_imbalance, load.factors))
    degrees = {"tp": np.array([1.0, 2.0, 4.0]), "ep": np.array([4.0, 4.0, 4.0])}
    assert np.asarray(load.evaluate(degrees)).tolist() == [1.0, 1.325, 1.325]
    assert load.evaluate({"tp": 4.0, "ep": 4.0, "imb": 1.5}) == 1.5
    assert load.substitute({"tp": 4, "ep": 2}) == 1.325
    steps = busiest(("tp", "ep"), (1, 2, 4, 8), (1.0, 1.1, 1.2, 1.3))
    some = steps.substitute({"tp": 3})
    assert [some.evaluate({"ep": n}) for n in (1.0, 2.0, 3.0)] == [1.1, 1.2, 1.3]
    assert parse_expr(str(some)) == some
    assert steps.substitute({"ep": symbol("tp")}).evaluate({"tp": 2.0}) == 1.2


def test_tables_and_their_points_know_shares_by_the_axis() -> None:
    rows = ExprTable.of([share(10, "tp") * 2, as_expr(4) / symbol("tp")])
    assert rows.symbols == {"tp"}
    plans = [make_plan(num_gpus=n, tp=n, seq_len=64, family=Family()) for n in (1, 3, 4, 3)]
    env, point = Points(PlanTable.of(plans)).of(rows.symbols)
    assert rows.evaluate(env, 3)[0][point].tolist() == [20, 8, 6, 8]
    assert np.asarray(share(10, "tp").evaluate({"tp": np.array([1.0, 3.0])})).tolist() == [10, 4]


@pytest.mark.parametrize(("degree", "holds", "copied"), [(1, 1, 1), (4, 1, 1), (3, 0, 0), (16, 0, 1), (12, 0, 0)])
def test_copies_let_a_degree_be_a_multiple(degree: int, holds: int, copied: int) -> None:
    assert suits(Constraint(8, TP.group, "heads"), 8, degree) == bool(holds)
    assert suits(Constraint(8, TP.group, "heads", copied=True), 8, degree) == bool(copied)


def test_a_constraint_is_asked_for_many_plans_at_once() -> None:
    degrees = np.array([1.0, 3.0, 4.0, 16.0])
    assert suits(Constraint(8, TP.group, "heads", copied=True), 8, degrees).tolist() == [True, False, True, True]
    # A quotient of powers is not quite whole.
    assert 147 * 49.0**-1 != 3
    assert suits(Constraint(3, TP.group, "heads"), 147 * 49.0**-1, 3)
