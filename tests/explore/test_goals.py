from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.explore.best import Best
from slipstick.explore.block import Found
from slipstick.explore.goals import Goal, MetricLimit, goals_of
from slipstick.explore.pareto import pareto
from slipstick.ir.errors import UnknownNameError, UsageError

KNOWN = ("step_time_s", "mfu", "peak_mem_bytes", "usd_per_mtok", "average_power_w", "tokens_per_s")


@pytest.mark.parametrize(
    ("text", "name", "relation", "value", "is_share"),
    [
        ("mfu>=0.4", "mfu", ">=", 0.4, False),
        ("mfu >= 40%", "mfu", ">=", 0.4, False),
        ("step_time<2min", "step_time_s", "<", 120.0, False),
        ("mem<=0.95", "peak_mem_bytes", "<=", 0.95, True),
        ("mem<=50%", "peak_mem_bytes", "<=", 0.5, True),
        ("mem<=70GiB", "peak_mem_bytes", "<=", 70 * 2.0**30, False),
        ("mem<=70e9", "peak_mem_bytes", "<=", 70e9, False),
        ("average_power_w<=1kW", "average_power_w", "<=", 1000.0, False),
        ("tokens_per_s>1e6", "tokens_per_s", ">", 1e6, False),
    ],
)
def test_limits_are_read_in_their_units(text: str, name: str, relation: str, value: float, is_share: bool) -> None:
    assert MetricLimit.of(text, KNOWN) == MetricLimit(name, relation, value, is_share)


def test_a_share_is_of_the_device() -> None:
    limit = MetricLimit.of("mem<=0.5", KNOWN)
    assert limit.holds(np.array([39.0, 40.0, 41.0]), 80.0).tolist() == [True, True, False]


@pytest.mark.parametrize("text", ["mfu", "mfu=0.4", "<=3", "mfu>=fast", "step_time<=3GiB"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        MetricLimit.of(text, KNOWN)


def test_goals_know_which_way_is_better_unless_a_sign_says_so() -> None:
    assert [str(goal) for goal in goals_of(["mfu,step_time", "-tokens_per_s"], KNOWN)] == [
        "mfu", "step_time_s", "-tokens_per_s",
    ]  # fmt: skip
    assert Goal.of("+mfu", KNOWN) == Goal.of("mfu", KNOWN) == Goal("mfu", -1.0)
    with pytest.raises(UnknownNameError, match="did you mean 'mfu'"):
        Goal.of("mfuu", KNOWN)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40),
    st.integers(1, 7),
    st.randoms(use_true_random=False),
)
def test_what_is_kept_is_what_a_look_at_all_rows_would_keep(
    rows: list[tuple[int, int]], at_once: int, order: Random
) -> None:
    goals = (Goal("a", 1.0), Goal("b", -1.0))
    a, b = np.array(rows, dtype=np.float64).T
    blocks = [
        Found(k, {}, 0, {"a": a[k * at_once :][:at_once], "b": b[k * at_once :][:at_once]})
        for k in range(-(-len(rows) // at_once))
    ]
    order.shuffle(blocks)
    best = Best(goals, 3)
    for found in blocks:
        best.take(found)
    ranked = np.lexsort([np.arange(len(rows)), -b, a])
    place = best.top["block"] * at_once + best.top["row"]
    assert place.tolist() == ranked[:3].tolist()
    front = np.flatnonzero(pareto([a, -b]))
    assert sorted((best.front["block"] * at_once + best.front["row"]).tolist()) == front.tolist()
