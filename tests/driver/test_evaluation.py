"""Tables in parts against tables at once, and equal kernels priced once against each by itself: the same to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstick.backends.machine.load import load_system
from slipstick.backends.pricing.binding import bind
from slipstick.backends.pricing.program import CompiledProgram, MergedEntries, PricingTable
from slipstick.backends.pricing.timing import price
from slipstick.cost.step.step_program import label_of
from slipstick.driver import evaluation
from slipstick.driver.estimate import Estimates, evaluate, lower, screen
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, PlanTable
from slipstick.ir.sizes.points import Points

Columns = Mapping[str, NDArray[np.float64]]
PLANS = 300
FAMILIES = (Family(sp=True), Family(sp=True, pp=True, zero=3, recompute="selective"), Family(recompute="full"))


def plans(family: Family) -> PlanTable:
    """Degrees, batches and lengths in no order, some often and some once."""
    draw = np.random.default_rng(0)
    tp, dp, pp = (draw.choice(np.array(of), PLANS) for of in ([1.0, 2.0], [1.0, 2.0, 4.0], [1.0, 2.0]))
    micro, num = (draw.integers(1, most, PLANS).astype(np.float64) for most in (4, 9))
    length = np.asarray(64.0 * draw.integers(1, 200, PLANS), dtype=np.float64)
    gpus = tp * dp * (pp if family.pp else 1.0)
    table = PlanTable(family, gpus, tp, dp, micro, num * (pp if family.pp else 1.0), length, np.zeros(PLANS))
    return replace(table, pp=pp) if family.pp else table


def columns(found: Estimates) -> dict[str, Columns]:
    step = found.step
    passes = {"forward": step.forward_s, "backward": step.backward_s}
    parts = {"metrics": found.metrics, "memory": found.memory_bytes, "breakdown": step.breakdown, "passes": passes}
    return {**parts, "hidden": step.hidden_comm_s}


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("screened", [False, True])
def test_a_table_in_parts_is_the_table_at_once(
    traced: Callable[[str], Graph], monkeypatch: pytest.MonkeyPatch, family: Family, screened: bool
) -> None:
    lowered, system, table = lower(traced("tiny-llama.train"), family), load_system("dgx-h100"), plans(family)
    prepared = screen(lowered, system, table).fitting() if screened else None
    table = table if prepared is None else prepared.plans
    whole = evaluate(lowered, system, table, prepared=prepared)
    assert whole.made is not None
    for rows, points in ((64, 8), (50, 1000), (299, 3)):
        monkeypatch.setattr(evaluation, "ROWS", rows)
        monkeypatch.setattr(evaluation, "POINTS", points)
        parts = evaluate(lowered, system, table, prepared=prepared)
        assert parts.made is None
        for name, wanted in columns(whole).items():
            given = columns(parts)[name]
            assert list(given) == list(wanted)
            for column, values in wanted.items():
                np.testing.assert_array_equal(given[column], values, strict=True)
        # What nobody kept is worked out when it is asked for.
        assert parts.staging.layouts == whole.staging.layouts
        np.testing.assert_array_equal(parts.timing.priced[0].time_s, whole.timing.priced[0].time_s)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_equal_kernels_priced_once_are_those_priced_each(traced: Callable[[str], Graph], family: Family) -> None:
    lowered, system, table = lower(traced("tiny-llama.train"), family), load_system("dgx-h100"), plans(family)
    tables = [PricingTable.of(t.symbols, [MergedEntries(g, g) for g in t.groups]) for t in lowered.program.tables]
    apart = CompiledProgram(lowered.graph, tuple(tables), lowered.program.order)
    merged, each = (price(bind(program, system), Points(table)) for program in (lowered.program, apart))
    assert sum(len(p.distinct_s) for p in merged.priced) < sum(len(p.distinct_s) for p in each.priced)
    for one, other in zip(merged.priced, each.priced, strict=True):
        np.testing.assert_array_equal(one.time_s, other.time_s)
        for k in range(len(other.group.entries)):
            np.testing.assert_array_equal(one.seconds_of(k), other.seconds_of(k))
        if one.kernels is not None and other.kernels is not None:
            assert [one.kernels.bound(k, 0) for k in range(len(one.time_s))] == [
                other.kernels.bound(k, 0) for k in range(len(one.time_s))
            ]
    sums = each.sums(label_of)
    assert sums.keys() == merged.sums(label_of).keys()
    for label, seconds in merged.sums(label_of).items():
        np.testing.assert_array_equal(seconds, sums[label])
