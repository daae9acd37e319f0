"""Layouts that are kept: the same ones as laid anew, and only where all that they depend on is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Run
from slipstick.ir.kept import RecentResults
from slipstick.ir.plan.layout.layouts import Layouts
from slipstick.ir.plan.layout.stages import lay_stages

COSTS = (0.0, 1.0, 2.5)
ASKED = [
    ("auto", 5, 1, COSTS, 0, "1f1b"),
    ("auto", 4, 1, COSTS, 0, "1f1b"),
    ("balanced", 4, 1, COSTS, 0, "1f1b"),
    ("balanced", 4, 1, COSTS, 0, "dualpipe"),
    ("balanced", 4, 1, COSTS, 1, "1f1b"),
    ("balanced", 4, 1, (0.0, 1.0, 0.0), 0, "1f1b"),
    ("balanced", 2, 2, COSTS, 0, "1f1b"),
    ("balanced", 2, 1, COSTS, 0, "zb-v"),
    ("even", 5, 2, None, 0, "1f1b"),
    ("1,2,3,6", 4, 1, None, 0, "1f1b"),
    ("auto", 1, 1, None, 0, "1f1b"),
]


def test_what_is_kept_is_what_would_be_laid(twelve: Graph) -> None:
    kept = Layouts()
    for _ in range(2):
        for policy, pp, vpp, costs, recomputed, schedule in ASKED:
            found = kept.of(twelve).lay(policy, pp, vpp, costs, recomputed, schedule)
            assert found == lay_stages(twelve, policy, pp, vpp, costs, recomputed, schedule)


@pytest.mark.parametrize("policy", ["balanced", "auto"])
def test_many_costs_are_laid_as_each_is(twelve: Graph, policy: str) -> None:
    draw = np.random.default_rng(11)
    costs, kept = draw.uniform(0.1, 3.0, (30, 3)), Layouts().of(twelve)
    for pp, schedule in ((2, "1f1b"), (5, "1f1b"), (4, "zb-v")):
        found, which = kept.lay_all(policy, (pp, 2, schedule), costs)
        each = [found[k] for k in np.broadcast_to(which, 30)]
        assert each == [lay_stages(twelve, policy, pp, 2, row, 0, schedule) for row in costs.tolist()]


def test_equal_layouts_are_one_object(twelve: Graph) -> None:
    kept = Layouts().of(twelve)
    assert kept.lay("balanced", 3, 1, COSTS) is kept.lay("balanced", 3, 1, (0.0, 1.0, 2.4))
    assert kept.lay("even", 3, 1) is kept.lay("4,4,4", 3, 1, schedule="zb-h1")


def test_an_error_is_raised_every_time(twelve: Graph) -> None:
    kept = Layouts()
    for _ in range(2):
        with pytest.raises(PlanError, match="more than the 12 layers"):
            kept.of(twelve).lay("auto", 13, 1)


def test_what_was_asked_for_longest_ago_goes() -> None:
    made: list[int] = []
    kept = RecentResults[int, None](2)
    for number in (1, 2, 1, 3, 1, 2):
        kept.of(number, lambda: made.append(number))  # noqa: B023
    assert made == [1, 2, 3, 2]


def test_graphs_with_the_same_regions_in_the_same_order_share_their_layouts(twelve: Graph) -> None:
    kept = Layouts()
    other = replace(twelve, name="another", schedule=tuple(Run(r.regions, min(r.count, 6)) for r in twelve.schedule))
    assert kept.of(twelve) is kept.of(replace(twelve, name="another"))
    assert kept.of(other) is not kept.of(twelve)
    assert kept.of(other).lay("even", 3, 1).blocks == (2, 2, 2)
