"""Backends of the user: asked before the built-in models, by every way to an estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from slipstick.backends.kernels.terms import KernelTimes
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.pricing.amounts import Amounts
from slipstick.backends.pricing.program import PricedEntry, PricingGroup
from slipstick.backends.pricing.roofline import Pricer, Roofline
from slipstick.driver.estimate import Estimates, estimate, estimate_many, evaluate, evaluate_machines, lower
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.report.explain.sensitivity import sensitivity

PLAN = make_plan(num_gpus=4, tp=2, seq_len=64, family=Family(sp=True))


@dataclass(frozen=True)
class Fixed:
    """Every kernel of an op takes so many seconds."""

    op: str
    seconds: float
    name: str = "fixed"
    formula: str = "fixed"

    def claims(self, entry: PricedEntry) -> bool:
        return entry.op == self.op

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        del entry, system
        return ()

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        del system

        def price(amounts: Amounts) -> KernelTimes:
            assert len(amounts.num_bytes) == len(group.entries)
            time_s = np.full_like(amounts.num_bytes, self.seconds)
            return KernelTimes(time_s, {"fixed": time_s})

        return price


@pytest.fixture(scope="module")
def graph(traced: Callable[[str], Graph]) -> Graph:
    return traced("tiny-llama.train")


@pytest.fixture(scope="module")
def system() -> System:
    return load_system("dgx-h100")


def times(table: Estimates, op: str) -> set[float]:
    """Times of the kernels of an op, without what kernels take longer in a step."""
    stack = table.system.stack
    return {time_s / float(stack.factor(e.kind)) for e, time_s in table.timing.rows() if e.op == op}


def others(table: Estimates, op: str) -> dict[str, float]:
    return {e.name: time_s for e, time_s in table.timing.rows() if e.op != op}


def test_what_a_backend_claims_is_priced_by_it_and_the_rest_as_before(graph: Graph, system: System) -> None:
    plain = estimate(graph, system, PLAN).table
    mine = estimate(graph, system, PLAN, backends=[Fixed("norm", 0.25)]).table
    assert sorted(times(mine, "norm")) == pytest.approx([0.25])
    assert others(mine, "norm") == others(plain, "norm")
    assert {p.backend.name for p in mine.timing.priced if p.backend is not None} > {"fixed"}


def test_every_way_to_an_estimate_reaches_them(graph: Graph, system: System) -> None:
    backends = [Fixed("norm", 0.25)]
    lowered, plain = lower(graph, PLAN.family, backends=backends), lower(graph, PLAN.family)
    plans = PlanTable.of([PLAN])
    wanted = estimate(graph, system, PLAN, backends=backends).metrics["step_time_s"]
    assert wanted > estimate(graph, system, PLAN).metrics["step_time_s"] + 0.25
    found = (
        estimate(graph, system, PLAN, lowered=lowered).metrics["step_time_s"],
        estimate(graph, system, PLAN, lowered=plain, backends=backends).metrics["step_time_s"],
        evaluate(lowered, system, plans).metrics["step_time_s"][0],
        evaluate(plain, system, plans, backends=backends).metrics["step_time_s"][0],
        estimate_many(lowered, system, [PLAN]).metrics["step_time_s"][0],
        evaluate_machines(lowered, system, PLAN).metrics["step_time_s"][0],
    )
    assert found == (wanted,) * len(found)


def test_none_given_takes_away_those_of_the_lowered_graph(graph: Graph, system: System) -> None:
    lowered = lower(graph, PLAN.family, backends=[Fixed("norm", 0.25)])
    plain = estimate(graph, system, PLAN).metrics
    assert estimate(graph, system, PLAN, lowered=lowered, backends=()).metrics == plain


def test_the_first_that_claims_an_entry_prices_it(graph: Graph, system: System) -> None:
    backends = [Fixed("norm", 0.25, "one"), Fixed("norm", 0.5, "two"), Fixed("softmax", 0.5, "three")]
    assert sorted(times(estimate(graph, system, PLAN, backends=backends).table, "norm")) == pytest.approx([0.25])


def test_two_backends_have_two_names(graph: Graph, system: System) -> None:
    with pytest.raises(UsageError, match="two backends are called 'roofline'; names in use: roofline, host"):
        estimate(graph, system, PLAN, backends=[Roofline()])


def test_how_a_step_follows_numbers_is_that_of_the_same_backends(graph: Graph, system: System) -> None:
    # Nearly all of the step is norms of a fixed time, so that no number of the machine matters.
    mine = sensitivity(estimate(graph, system, PLAN, backends=[Fixed("norm", 0.25)]))
    plain = sensitivity(estimate(graph, system, PLAN))
    largest = max(plain, key=lambda name: abs(plain[name]))
    assert abs(plain[largest]) > 0.01
    assert abs(mine[largest]) < 0.01 * abs(plain[largest])
