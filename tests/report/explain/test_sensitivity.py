"""Elasticities: by hand on a roofline, laws that hold on any machine, and what a changed number really gives."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.stack import MeasuredAllReduce, NetworkState
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimate, estimate, estimate_many, lower
from slipstick.ir.graph import Graph, Phase, Workload
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.report.bounds import bound_seconds
from slipstick.report.explain.parameters import parameters
from slipstick.report.explain.sensitivity import elasticities, sensitivity

Traced = Callable[[str], Graph]
# The error of a difference of 0.1 % in plain proportions.
NEAR = 2e-6

TRAIN = make_plan(num_gpus=16, tp=2, seq_len=64, global_batch=64, family=Family(sp=True, zero=1))
PLANS = {
    "tiny-llama.train": [
        TRAIN,
        make_plan(num_gpus=16, tp=2, pp=2, seq_len=64, global_batch=64, family=Family(sp=True, pp=True)),
        make_plan(num_gpus=16, cp=2, seq_len=64, global_batch=64, family=Family(cp="ring", zero=3)),
        make_plan(num_gpus=8, seq_len=64, global_batch=64, family=Family(zero=1, offload=("optimizer",))),
    ],
    "tiny-mixtral.train": [make_plan(num_gpus=16, ep=2, seq_len=64, global_batch=64, family=Family(ep=True))],
    "tiny-llama.decode": [make_plan(num_gpus=1, seq_len=1, kv_len=64, family=Family(workload=Workload.DECODE))],
}
CASES = [
    (model, plan, stack)
    for model, plans in PLANS.items()
    for plan in plans
    for stack in ("default", *(("vllm",) if "decode" in model else ("megatron-2022", "nanotron")))
]


def all_together(answer: Estimate) -> float:
    """The elasticity to everything at once: of times, less those of rates."""
    found = sensitivity(answer)
    signs = {p.name: -1.0 if p.is_rate else 1.0 for p in parameters(answer.table.system, answer.table.timing)}
    return sum(signs[name] * value for name, value in found.items())


@pytest.mark.parametrize(("model", "plan", "stack"), CASES)
def test_twice_as_fast_in_everything_is_twice_as_fast(traced: Traced, model: str, plan: Plan, stack: str) -> None:
    answer = estimate(traced(model), load_system("dgx-h100", stack=stack), plan)
    assert all_together(answer) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("name", ["tpu-v5p-pod", "dgx-a100-80gb", "mi300x-platform"])
def test_it_is_so_on_other_machines(traced: Traced, name: str) -> None:
    assert all_together(estimate(traced("tiny-llama.train"), load_system(name), TRAIN)) == pytest.approx(1.0, abs=1e-4)


def test_what_was_measured_of_a_network_is_a_time_too(traced: Traced, made_up: System) -> None:
    measured = (MeasuredAllReduce(1e3, 4, 1e-3), MeasuredAllReduce(1e9, 4, 1e-2))
    plan = make_plan(num_gpus=4, tp=4, seq_len=64, family=Family())
    stack = replace(made_up.stack, network=NetworkState(all_reduces=measured))
    answer = estimate(traced("tiny-llama.train"), replace(made_up, stack=stack), plan)
    found = sensitivity(answer)
    assert found["overhead.network"] > 0.5
    assert all_together(answer) == pytest.approx(1.0, abs=1e-4)


def test_on_a_roofline_an_elasticity_is_the_share_that_the_number_bounds(traced: Traced, made_up: System) -> None:
    """T = sum of max(F/P, V/P_v, Q/BW) + launches: d ln T / d ln P is less the seconds that P bounds, over T."""
    plan = make_plan(num_gpus=1, seq_len=2048, micro_batch=8, global_batch=32, family=Family())
    answer = estimate(traced("tiny-llama.train"), made_up, plan)
    step, bounds, found = answer.metrics["step_time_s"], bound_seconds(answer), sensitivity(answer)
    kernels = [e for e in answer.table.lowered.program.entries if e.message is None]
    launches = 2e-6 * sum(e.count * (1 if e.phase is Phase.OPTIMIZER else 4) for e in kernels)
    assert found["overhead.kernels"] == pytest.approx(launches / step, rel=NEAR)
    for name, bound in (("chip.matmul.bf16", "matrix"), ("chip.vector.fp32", "vector")):
        assert found[name] == pytest.approx(-bounds.get(bound, 0.0) / step, rel=NEAR, abs=1e-9)
    assert found["chip.memory.hbm.bandwidth"] == pytest.approx(-bounds["hbm"] / step, rel=NEAR)
    assert found["chip.clock"] == 0.0
    assert not any(name.startswith("network") for name in found)


def test_of_messages_that_nothing_hides_too(traced: Traced, made_up: System) -> None:
    answer = estimate(traced("tiny-llama.train"), made_up, make_plan(num_gpus=4, tp=4, seq_len=64, family=Family()))
    step, bounds, found = answer.metrics["step_time_s"], bound_seconds(answer), sensitivity(answer)
    assert found["network.inner.latency"] == pytest.approx(bounds["network.inner.latency"] / step, rel=NEAR)
    assert found["network.inner.bandwidth"] == pytest.approx(-bounds["network.inner.bandwidth"] / step, rel=NEAR)
    assert "network.outer.bandwidth" not in found


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("chip.memory.hbm.bandwidth", "chip.memory.hbm.bandwidth", 3350e9),
        ("chip.matmul.bf16", "chip.matmul.bf16", 989e12),
        ("network.nvlink.bandwidth", "network.nvlink.bandwidth", 450e9),
        ("network.infiniband.latency", "network.infiniband.latency", 5e-6),
    ],
)
def test_an_elasticity_is_what_a_changed_number_gives(traced: Traced, name: str, path: str, value: float) -> None:
    unit = "s" if path.endswith("latency") else ""
    before, after = (
        estimate(traced("tiny-llama.train"), load_system("dgx-h100", [f"{path}={value * factor!r}{unit}"]), TRAIN)
        for factor in (1.0 / 1.01, 1.01)
    )
    found = sensitivity(estimate(traced("tiny-llama.train"), load_system("dgx-h100"), TRAIN))[name]
    given = math.log(after.metrics["step_time_s"] / before.metrics["step_time_s"]) / (2 * math.log(1.01))
    # Steps of a collective also take what the library adds, which goes with the latency here and not with --set.
    if not name.endswith("latency") or not load_system("dgx-h100").levels[-1].protocol:
        assert found == pytest.approx(given, rel=0.02, abs=1e-6)
    assert found * given > 0.0


def test_a_table_of_plans_has_what_each_plan_alone_has(traced: Traced) -> None:
    system, graph = load_system("dgx-h100"), traced("tiny-llama.train")
    plans = [TRAIN, replace(TRAIN, global_batch=128), replace(TRAIN, seq_len=128)]
    done = lower(graph, TRAIN.family)
    together = elasticities(estimate_many(done, system, plans))
    for row, plan in enumerate(plans):
        alone = elasticities(estimate_many(done, system, [plan]))
        assert together.keys() == alone.keys()
        for name, values in together.items():
            assert values[row] == pytest.approx(alone[name][0], abs=1e-9)
            assert isinstance(values, np.ndarray)


def test_the_greatest_comes_first_and_the_machine_stays_as_it_is(traced: Traced) -> None:
    answer = estimate(traced("tiny-llama.train"), load_system("dgx-h100"), TRAIN)
    before = answer.table.system
    sizes = [abs(v) for v in sensitivity(answer).values()]
    assert sizes == sorted(sizes, reverse=True)
    assert answer.table.system == before == load_system("dgx-h100")
