"""A program bound to a system: bound once, alike messages priced in one row, each group's answer cut out of it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.pricing.binding import Bindings, BoundProgram, bind
from slipstick.backends.pricing.program import group_factors
from slipstick.backends.pricing.timing import Timing, price
from slipstick.driver.estimate import Lowered, lower
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.sizes.points import Points

FAMILY = Family(sp=True, pp=True, zero=1)


@pytest.fixture(scope="module")
def lowered(traced: Callable[[str], Graph]) -> Lowered:
    return lower(traced("tiny-llama.train"), FAMILY)


@pytest.fixture(scope="module")
def system() -> System:
    return load_system("dgx-h100")


@pytest.fixture(scope="module")
def plans() -> PlanTable:
    given = [(tp, dp, mbs) for tp in (1, 2) for dp in (2, 16) for mbs in (1, 3)]
    return PlanTable.of(
        [
            make_plan(num_gpus=2 * tp * dp, tp=tp, dp=dp, pp=2, micro_batch=mbs, seq_len=64, family=FAMILY)
            for tp, dp, mbs in given
        ]
    )


@pytest.fixture(scope="module")
def bound(lowered: Lowered, system: System) -> BoundProgram:
    return bind(lowered.program, system)


@pytest.fixture(scope="module")
def timing(bound: BoundProgram, plans: PlanTable) -> Timing:
    return price(bound, Points(plans))


def test_the_same_system_is_bound_once(lowered: Lowered, system: System) -> None:
    bindings = Bindings(lowered.program)
    first = bindings.to(system)
    assert bindings.to(system) is first
    other = replace(system, name="another")
    assert bindings.to(other).system is other
    assert bindings.to(system) is not first


def test_every_message_is_in_one_row(bound: BoundProgram) -> None:
    placed = [(b.table, i) for _, batches in bound.batches for b in batches for i, _ in b.messages]
    assert sorted(placed) == [(k, i) for k, t in enumerate(bound.tables) for i in range(len(t.messages))]


def test_gathers_and_scatters_go_together_and_sends_apart(bound: BoundProgram) -> None:
    kinds = [{m.kind for b in batches for _, m in b.messages} for _, batches in bound.batches]
    assert {"all_gather", "reduce_scatter"} in kinds
    assert {"send"} in kinds


def stretches_compared(timing: Timing, plans: PlanTable, system: System) -> list[int]:
    """Compare each message of each plan with one alone; return of how many stretches of ranks the groups were."""
    degrees = {name: plans.columns[name] for name in ("tp", "cp", "ep", "dp", "pp")}
    seen = list[int]()
    for p in timing.priced:
        if p.collective is None or p.messages is None:
            continue
        for plan in range(len(plans)):
            (size, stride), *more = group_factors(p.group.axis, {k: float(v[plan]) for k, v in degrees.items()})
            for row in range(len(p.group.entries)):
                at = row * p.time_s.shape[1] + int(p.point[plan])
                message = float(p.messages[row, p.point[plan]])
                alone = collective_time(p.collective.kind, message, size, stride, system, more)
                assert np.asarray(p.collective.time_s).flat[at] == alone.time_s
                assert p.collective.chosen(at).algorithm == alone.chosen().algorithm
                seen.append(1 + len(more))
    return seen


def test_a_group_has_the_answer_that_it_would_have_alone(timing: Timing, plans: PlanTable, system: System) -> None:
    assert len(stretches_compared(timing, plans, system)) > 50


def test_ranks_of_two_axes_with_another_between_are_two_stretches(
    traced: Callable[[str], Graph], system: System
) -> None:
    """Gradients of experts are summed over cp and dp, and ep lies between these."""
    family = Family(sp=True, cp="allgather", ep=True, zero=1)
    plan = make_plan(num_gpus=32, tp=2, cp=2, ep=2, dp=8, micro_batch=1, seq_len=64, family=family)
    program = lower(traced("tiny-mixtral.train"), family).program
    table = PlanTable.of([plan])
    assert 2 in stretches_compared(price(bind(program, system), Points(table)), table, system)
