"""One step on several systems: equal ones are one, slower ones take longer, links carry what crosses, layers fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick import Family, GraphCache, Plan, System, load, load_system, lower, make_plan
from slipstick.driver.estimate import Lowered, estimate, worth
from slipstick.driver.fleet import Fleet, MixedPricer
from slipstick.driver.fleet_layers import layers_of
from slipstick.driver.fleet_step import MixedStep, mixed_step
from slipstick.ir.errors import PlanError, UsageError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.units import parse_quantity

FAST, SLOW = "dgx-h100", "dgx-a100-80gb"


@cache
def graph_of(model: str, phase: str = "train") -> Graph:
    return load(model, phase, cache=GraphCache.default())


@cache
def lowered_of(model: str, family: Family) -> Lowered:
    return lower(graph_of(model, str(family.workload)), family)


@cache
def system_of(name: str, *overrides: str) -> System:
    return load_system(name, overrides)


def plan_of(pp: int = 4, layout: str = "even", **said: object) -> Plan:
    words = {"sp": True, "pp": True, "zero": 1, "pp_layout": layout, **said}
    numbers = {"tp": 8, "global_batch": 32, "micro_batch": 1, "seq_len": 4096, "vpp": 1}
    own = {name: words.pop(name, usual) for name, usual in numbers.items()}
    return make_plan(num_gpus=pp * 16, pp=pp, family=Family(**words), **own)  # type: ignore[arg-type]


def step(
    plan: Plan,
    systems: Sequence[System],
    stages: Sequence[int],
    model: str = "llama-3.1-8b",
    link_bytes_per_s: float | None = None,
) -> MixedStep:
    fleet = Fleet(tuple(systems), tuple(stages), link_bytes_per_s)
    graph = graph_of(model, str(plan.family.workload))
    return mixed_step(graph, plan, fleet, lowered=lowered_of(model, plan.family))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama-3.1-8b", {}),
        ("llama-3.1-8b", {"vpp": 2}),
        ("llama-3.1-8b", {"schedule": "zb-h1"}),
        ("llama-3.1-8b", {"schedule": "zb-v", "vpp": 2}),
        ("llama-3.1-8b", {"zero": 3, "recompute": "full"}),
        (
            "gpt2-xl",
            {"tp": 1, "sp": False, "seq_len": 1024},
        ),  # the head is the embedding: both ends add up its gradients
    ],
)
def test_equal_systems_are_one_system_to_the_last_bit(model: str, said: Mapping[str, object]) -> None:
    plan, fast = plan_of(**said), system_of(FAST)  # type: ignore[arg-type]
    one = estimate(graph_of(model), fast, plan, lowered=lowered_of(model, plan.family))
    for stages in ((4,), (1, 3), (2, 2), (1, 2, 1)):
        many = step(plan, [fast] * len(stages), stages, model)
        assert {name: many.metrics[name] for name in one.metrics} == one.metrics
        assert many.breakdown_s == one.breakdown_s
        assert many.hidden_comm_s == one.hidden_comm_s


def test_of_one_system_alone_money_is_that_of_the_estimate() -> None:
    plan, fast = plan_of(), system_of(FAST)
    one = worth(estimate(graph_of("llama-3.1-8b"), fast, plan)).money
    assert one is not None
    many = step(plan, [fast], [4]).metrics
    for name in ("usd_per_step", "usd_per_mtok", "usd_capex", "average_power_w", "model_flop_per_s_per_w"):
        assert many[name] == pytest.approx(one.metrics[name], rel=1e-12)


def test_what_stages_do_takes_the_energy_of_the_whole_wherever_they_stand() -> None:
    plan, fast = plan_of(), system_of(FAST)
    (whole,) = step(plan, [fast], [4]).money
    parts = [money.energy.parts_j for money in step(plan, [fast, fast], [1, 3]).money]
    for name in ("matrix units", "vector units", "memory", "cache", "wires", "idle", "hosts"):
        assert sum(float(np.ravel(p[name])[0]) for p in parts) == pytest.approx(
            float(np.ravel(whole.energy.parts_j[name])[0]), rel=1e-12
        )


@settings(max_examples=12)
@given(st.integers(1, 3), st.booleans(), st.sampled_from(("1f1b", "gpipe", "zb-h1")))
def test_a_mixed_step_lies_between_those_of_its_systems(num: int, slow_first: bool, schedule: str) -> None:
    plan = plan_of(schedule=schedule)
    pair = [system_of(SLOW), system_of(FAST)][:: 1 if slow_first else -1]
    slow, fast = (step(plan, [system_of(name)], [4]).metrics["step_time_s"] for name in (SLOW, FAST))
    even = step(plan, pair, [num, 4 - num]).metrics["step_time_s"]
    balanced = step(plan_of(schedule=schedule, layout="auto"), pair, [num, 4 - num]).metrics["step_time_s"]
    # The link between them is the slower network of both, which all-slow has between all stages.
    assert fast <= balanced <= even <= slow * (1 + 1e-12)


@settings(max_examples=12)
@given(
    st.sampled_from(("chip.matmul.bf16", "chip.memory.hbm.bandwidth", "network.infiniband.bandwidth")),
    st.floats(1.0, 4.0),
    st.integers(0, 1),
)
def test_a_faster_part_of_one_system_never_slows_the_step(path: str, factor: float, which: int) -> None:
    plan, systems = plan_of(), [system_of(FAST), system_of(SLOW)]
    numbers = {number.path: number for number in systems[which].sources}
    if path not in numbers:
        return
    faster = load_system(systems[which].name, [f"{path}={float(numbers[path].value_si) * factor}"])
    changed = [faster if k == which else s for k, s in enumerate(systems)]
    before, after = (step(plan, s, [2, 2]).metrics["step_time_s"] for s in (systems, changed))
    assert after <= before * (1 + 1e-12)


def test_a_prefill_takes_what_its_stages_take_one_behind_the_other() -> None:
    family = Family(sp=True, pp=True, workload=Workload.PREFILL, kernels="fused")
    plan = make_plan(num_gpus=32, tp=8, pp=4, seq_len=4096, family=family)
    found = step(plan, [system_of(FAST), system_of(SLOW)], [1, 3])
    assert found.metrics["step_time_s"] == pytest.approx(sum(s.forward_s for s in found.stages), rel=1e-12)
    # Many batches go at the pace of the slowest stage, so that the faster chip has more layers.
    assert found.stages[0].layers[0] > 1.5 * found.stages[1].layers[0]


def test_a_link_takes_the_bytes_of_the_residual_stream_over_its_bandwidth() -> None:
    family = Family(pp=True, workload=Workload.PREFILL, kernels="fused", pp_layout="even")
    plan = make_plan(num_gpus=32, tp=1, pp=4, seq_len=4096, family=family)
    seconds = {}
    for rate in ("1GB/s", "2GB/s"):
        link = parse_quantity(rate, "B/s").value_si
        found = step(plan, [system_of(FAST), system_of(SLOW)], [2, 2], link_bytes_per_s=link)
        seconds[rate] = found.metrics["step_time_s"]
    num_bytes = 2 * 4096 * 4096 * 2  # residual stream and what is added to it, tokens x hidden size x bf16
    levels = [system_of(name).levels[-1] for name in (FAST, SLOW)]
    assert all(level.efficiency > 0.5 for level in levels)
    expected = [num_bytes * (1 / 1e9 - 1 / 2e9) / level.efficiency for level in levels]
    assert seconds["1GB/s"] - seconds["2GB/s"] == pytest.approx(max(expected), rel=1e-6)


def test_the_memory_of_each_stage_is_that_of_one_system_with_these_layers() -> None:
    plan = plan_of(layout="5,11,11,5")
    found = step(plan, [system_of(FAST), system_of(SLOW)], [3, 1])
    one = estimate(graph_of("llama-3.1-8b"), system_of(FAST), plan)
    assert max(s.peak_mem_bytes for s in found.stages[:3]) == one.metrics["peak_mem_bytes"]
    assert [s.system for s in found.stages] == [FAST] * 3 + [SLOW]
    assert [s.layers for s in found.stages] == [(5,), (11,), (11,), (5,)]
    assert {s.limit_bytes for s in found.stages[3:]} == {float(system_of(SLOW).chip.hbm_bytes)}


@pytest.mark.parametrize("stages", [(2, 1), (1, 2)])
@pytest.mark.parametrize("pair", [(FAST, SLOW), (SLOW, FAST)])
def test_layers_are_those_of_the_best_of_all_splits(stages: tuple[int, int], pair: tuple[str, str]) -> None:
    plan = plan_of(pp=3, layout="auto")
    fleet = Fleet(tuple(system_of(name) for name in pair), stages)
    pricer = MixedPricer(lowered_of("llama-3.1-8b", plan.family), plan, fleet)
    every = [(a, b - a, 32 - b) for a, b in combinations(range(1, 32), 2)]
    table = pricer.table(every)
    fits = np.all(table.peaks <= table.limits[:, None], axis=0)
    best = min(t for t, fit in zip(table.step.time_s.tolist(), fits.tolist(), strict=True) if fit)
    assert pricer.table([layers_of(pricer)]).step.time_s[0] == pytest.approx(best, rel=1e-12)


def test_where_memory_is_short_layers_go_where_it_is_not() -> None:
    plan, fast = plan_of(layout="auto"), system_of(FAST)
    roomy = step(plan, [fast, fast], [2, 2])
    small = system_of(FAST, f"chip.memory.hbm.capacity={roomy.stages[0].peak_mem_bytes * 0.9 / 2**30}GiB")
    found = step(plan, [small, fast], [2, 2])
    assert found.fits
    assert sum(n for s in found.stages[:2] for n in s.layers) < 16
    assert not step(replace(plan, pp_layout="even"), [small, fast], [2, 2]).fits


def test_utilisation_is_of_the_peaks_of_both() -> None:
    found = step(plan_of(), [system_of(FAST), system_of(SLOW)], [1, 3])
    peaks = [float(system_of(name).chip.matmul_flop_per_s("bf16")) for name in (FAST, SLOW)]
    whole = (peaks[0] * 1 + peaks[1] * 3) * 16
    m = found.metrics
    assert m["mfu"] == pytest.approx(m["model_flops"] / whole / m["step_time_s"], rel=1e-12)
    assert "mbu" not in m
    assert "gpu_power_w" not in m


@pytest.mark.parametrize(
    ("plan", "stages", "message"),
    [
        (plan_of(), (1, 2), "has 3 stages, the plan pp=4"),
        (plan_of(schedule="dualpipe", vpp=1), (2, 2), "two copies of the model"),
        (plan_of(order="tp-pp-cp-ep-dp"), (2, 2), "pp outermost"),
        (plan_of(precision="fp8"), (2, 2), "fp8"),
    ],
)
def test_what_several_systems_cannot_hold_is_refused(plan: Plan, stages: tuple[int, int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        step(plan, [system_of(FAST), system_of(SLOW)], stages)


def test_a_link_without_bandwidth_is_refused() -> None:
    with pytest.raises(UsageError, match="--link: a bandwidth above 0"):
        Fleet((system_of(FAST),), (4,), link_bytes_per_s=0.0)


def test_a_system_whose_network_reaches_no_other_is_refused() -> None:
    fast = system_of(FAST)
    alone = replace(fast, levels=fast.levels[:1])
    plan = make_plan(num_gpus=8, tp=4, pp=2, seq_len=4096, global_batch=8, family=Family(sp=True, pp=True))
    assert step(plan, [alone], [2]).metrics["step_time_s"] > 0.0
    with pytest.raises(UsageError, match="joins 8 devices and reaches no other system"):
        step(plan, [alone, fast], [1, 1])
