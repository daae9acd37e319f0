"""What bounds a step: by hand where one term is the greatest, and always all of the step."""

from collections.abc import Callable

import numpy as np
import pytest

from slipstick.backends.kernels.terms import ADDED, RESOURCES, KernelTimes
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.report.bounds import bound_seconds, kernel_bounds, node_seconds, part_of
from slipstick.report.trace.costed import costed_rows

Traced = Callable[[str], Graph]
LAUNCH = 2e-6


def train(family: Family, tp: int = 1, pp: int = 1, cp: int = 1, ep: int = 1) -> Plan:
    return make_plan(num_gpus=16, tp=tp, pp=pp, cp=cp, ep=ep, seq_len=64, global_batch=64, family=family)


PLANS = {
    "alone": make_plan(num_gpus=1, seq_len=64, global_batch=4, family=Family()),
    "tp": train(Family(sp=True), tp=2),
    "zero": train(Family(sp=True, zero=3), tp=2),
    "stages": train(Family(sp=True, pp=True), tp=2, pp=2),
    "ring": train(Family(cp="ring"), cp=2),
    "host": train(Family(zero=1, offload=("optimizer",))),
}


@pytest.mark.parametrize("stack", ["default", "megatron-2022"])
@pytest.mark.parametrize("name", PLANS)
def test_bounds_add_up_to_the_step(traced: Traced, name: str, stack: str) -> None:
    answer = estimate(traced("tiny-llama.train"), load_system("dgx-h100", stack=stack), PLANS[name])
    found = bound_seconds(answer)
    assert sum(found.values()) == pytest.approx(answer.metrics["step_time_s"], rel=1e-9)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert min(found.values()) > 0.0


@pytest.mark.parametrize("name", PLANS)
def test_every_node_is_booked_on_a_part_of_the_breakdown(traced: Traced, name: str) -> None:
    answer = estimate(traced("tiny-llama.train"), load_system("dgx-h100"), PLANS[name])
    nodes = list(node_seconds(answer))
    assert {part_of(entry) for _, _, entry, _ in nodes} <= set(answer.breakdown_s)
    # Every part but those without nodes is made of nodes: what is exposed and what hides of it.
    spent: dict[str | None, float] = {}
    for _, _, entry, seconds in nodes:
        spent[part_of(entry)] = spent.get(part_of(entry), 0.0) + seconds
    parts = {k: v + answer.hidden_comm_s.get(k, 0.0) for k, v in answer.breakdown_s.items()}
    whole = {
        k: v for k, v in parts.items() if k not in ("bubble", "stragglers", "host", "compute.lent_sms", "offload") and v
    }
    if name != "stages":  # what stages do not have alike once a step is the dearest one's, not the pace's
        assert spent | {"offload": 0.0} == pytest.approx(whole | {"offload": 0.0}, rel=1e-9)


def test_alone_on_a_roofline_each_kernel_is_bound_by_its_greatest_term(traced: Traced, made_up: System) -> None:
    plan = make_plan(num_gpus=1, seq_len=2048, micro_batch=8, global_batch=32, family=Family())
    answer = estimate(traced("tiny-llama.train"), made_up, plan)
    wanted = {"launch": 0.0, "matrix": 0.0, "vector": 0.0, "hbm": 0.0}
    for row in (r for r in costed_rows(answer) if r.bound != "network"):
        runs = row.count * (1 if row.phase == "optimizer" else 4)
        # 100 TFLOP/s at 0.5, 8 TFLOP/s at 0.25, 1 TB/s at 0.8; masked blocks of attention are skipped.
        by = {"matrix": row.tensor_flops / 50e12, "vector": row.vector_flops / 2e12, "hbm": row.num_bytes / 0.8e12}
        most = max(by, key=lambda name: by[name])
        if row.op.startswith("attention"):
            most = {"tensor": "matrix", "vector": "vector", "memory": "hbm"}[row.bound]
        else:
            assert row.time_s == pytest.approx(by[most] + LAUNCH)
        wanted[most] += runs * (row.time_s - LAUNCH)
        wanted["launch"] += runs * LAUNCH
    assert bound_seconds(answer) == pytest.approx({k: v for k, v in wanted.items() if v}, rel=1e-9)


def test_messages_are_latency_and_bandwidth_of_their_levels(traced: Traced, made_up: System) -> None:
    answer = estimate(traced("tiny-llama.train"), made_up, make_plan(num_gpus=4, tp=4, seq_len=64, family=Family()))
    found = bound_seconds(answer)
    network = {name: s for name, s in found.items() if name.startswith("network.")}
    assert set(network) == {"network.inner.latency", "network.inner.bandwidth"}
    launched = sum(3e-6 * n for n in (sum(e.count for _, _, e, _ in node_seconds(answer) if e.message is not None),))
    assert sum(network.values()) + launched == pytest.approx(answer.metrics["exposed_comm_s"], rel=1e-9)


def test_decode_on_graphs_waits_for_the_host(traced: Traced) -> None:
    plan = make_plan(num_gpus=1, seq_len=1, kv_len=64, family=Family(workload=Workload.DECODE))
    slow = load_system("dgx-h100", ["stack.issue_overhead=1 ms"])
    answer = estimate(traced("tiny-llama.decode"), slow, plan)
    found = bound_seconds(answer)
    assert next(iter(found)) == "host"
    assert found["host"] / answer.metrics["step_time_s"] > 0.99


def test_a_kernel_is_split_into_what_nothing_hides_and_its_greatest_term() -> None:
    terms = {name: np.array(s) for name, s in (("overhead", 2.0), ("tensor", 6.0), ("memory", 5.0), ("split", 1.0))}
    found = kernel_bounds(KernelTimes(np.array([[11.0]]), terms), (0, 0), 11.0)
    assert found == {"launch": 2.0, "l2": 1.0, "matrix": 8.0}
    unknown = kernel_bounds(KernelTimes(np.array([[3.0]]), {"photons": np.array(3.0)}), (0, 0), 3.0)
    assert unknown == {"other": 3.0}


def test_every_term_of_every_model_waits_for_something(traced: Traced) -> None:
    answers: list[Estimate] = [
        estimate(traced("tiny-mixtral.train"), load_system("dgx-h100", stack=stack), plan)
        for stack in ("default", "megatron-core")
        for plan in (PLANS["host"], train(Family(ep=True), ep=2))
    ]
    used = {t for a in answers for p in a.table.timing.priced if p.kernels for t in p.kernels.terms}
    assert used <= RESOURCES.keys()
    assert RESOURCES.keys() >= ADDED
