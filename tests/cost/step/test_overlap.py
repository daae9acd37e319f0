"""What hides tensor-parallel messages and rings: which products stand beside which message, and how much is hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.stack import Overlap
from slipstick.backends.machine.system import System
from slipstick.backends.network.sms import memory_share
from slipstick.cost.step.overlap import pairs_of
from slipstick.cost.step.policy import StepPolicy
from slipstick.cost.step.stage_time import pass_account
from slipstick.cost.step.stages import StageProgram
from slipstick.cost.step.step_program import RING
from slipstick.driver.estimate import Estimate, Lowered, estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Phase, Region, Run, Workload
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.sizes.points import Points
from slipstick.ir.types import DType
from slipstick.report.explain.explain import explain_text

ALONE = Graph("by hand", Workload.TRAIN, DType.BF16, (Region("only", (), ()),), (Run(("only",)),))


@pytest.fixture(scope="module")
def llama() -> Graph:
    return load("llama-3.1-8b")


@pytest.fixture(scope="module")
def system() -> System:
    return load_system("dgx-h100")


@pytest.fixture(scope="module")
def lowered(llama: Graph) -> Mapping[bool, Lowered]:
    return {flag: lower(llama, Family(sp=True, async_tp=flag)) for flag in (False, True)}


def answer(llama: Graph, system: System, lowered: Mapping[bool, Lowered], flag: bool, tp: int = 8) -> Estimate:
    plan = make_plan(num_gpus=tp, tp=tp, seq_len=8192, family=Family(sp=True, async_tp=flag))
    return estimate(llama, system, plan, lowered=lowered[flag])


def test_products_beside_the_messages_of_a_layer(lowered: Mapping[bool, Lowered]) -> None:
    region = lowered[True].graph.region("block0")
    pairs = [p for p in pairs_of(lowered[True].graph) if p.region == "block0"]
    found = [
        (region.producer[p.message].op, str(region.producer[p.message].phase),
         sorted(region.producer[k].scope.rpartition(".")[2] for k in p.products))
        for p in pairs
    ]  # fmt: skip
    qkv, mlp = ["k_proj", "q_proj", "v_proj"], ["gate_proj", "up_proj"]
    assert [f for f in found if f[1] == "forward"] == [
        ("all_gather", "forward", qkv), ("reduce_scatter", "forward", ["o_proj"]),
        ("all_gather", "forward", mlp), ("reduce_scatter", "forward", ["down_proj"]),
    ]  # fmt: skip
    backward = sorted(f[::2] for f in found if f[1] == "backward")
    # Of the result's gradient both products of a layer read what is gathered; inputs gathered again feed weight
    # gradients; what is scattered is the sum of the products with the weights.
    assert backward == sorted([
        ("all_gather", ["down_proj", "down_proj"]), ("all_gather", mlp), ("reduce_scatter", mlp),
        ("all_gather", ["o_proj", "o_proj"]), ("all_gather", qkv), ("reduce_scatter", qkv),
    ])  # fmt: skip


def test_scatters_of_frozen_weights_hide_as_the_stack_says(llama: Graph) -> None:
    """TransformerEngine hides them beside gradients of weights, which frozen ones lack; PyTorch behind products."""
    family = Family(sp=True, async_tp=True, lora_rank=8, lora_modules=("q_proj",))
    low = lower(llama, family)
    region = low.graph.region("block0")
    frozen = {
        tuple(sorted(region.producer[k].scope.rpartition(".")[2] for k in p.frozen))
        for p in pairs_of(low.graph)
        if p.region == "block0" and p.frozen
    }
    assert frozen == {("gate_proj", "up_proj"), ("k_proj", "q_proj", "v_proj")}
    plan = make_plan(num_gpus=8, tp=8, seq_len=8192, family=family)
    steps = [
        estimate(llama, system, plan, lowered=low).metrics["step_time_s"]
        for base in [load_system("dgx-h100")]
        for share in (1.0, 0.5, 0.0)
        for system in [replace(base, stack=replace(base.stack, overlap=Overlap(frozen=share)))]
    ]
    assert steps[0] < steps[1] < steps[2]
    assert load_system("dgx-h100", stack="megatron-core").stack.overlap.frozen == 0.0


def test_a_product_hides_one_message_only(lowered: Mapping[bool, Lowered]) -> None:
    used = [(p.region, k) for p in pairs_of(lowered[True].graph) for k in p.products]
    assert len(used) == len(set(used))


def test_each_message_hides_behind_its_products(llama: Graph, system: System, lowered: Mapping[bool, Lowered]) -> None:
    """By hand, from the times of single nodes: exposed = max(0, message - products (1 - 1/8))."""
    on, off = (answer(llama, system, lowered, flag) for flag in (True, False))
    times = {(e.region, e.key): s for e, s in on.table.timing.rows()}
    counts = lowered[True].graph.counts
    hidden = sum(
        counts[p.region] * min(times[p.region, p.message], sum(times[p.region, k] for k in p.products) * 7 / 8)
        for p in pairs_of(lowered[True].graph)
    )
    assert hidden > 0
    assert on.hidden_comm_s["comm.tp"] == pytest.approx(hidden, rel=1e-9)
    assert "comm.tp" not in off.hidden_comm_s
    assert on.breakdown_s["comm.tp"] + hidden == pytest.approx(off.breakdown_s["comm.tp"], rel=1e-9)
    assert off.metrics["step_time_s"] - on.metrics["step_time_s"] == pytest.approx(hidden, rel=1e-9)


def test_one_rank_has_nothing_to_hide(llama: Graph, system: System, lowered: Mapping[bool, Lowered]) -> None:
    on, off = (answer(llama, system, lowered, flag, tp=1) for flag in (True, False))
    assert on.metrics["step_time_s"] == off.metrics["step_time_s"]


def test_it_needs_sequence_parallelism() -> None:
    with pytest.raises(PlanError, match="async_tp hides the gathers and scatters of sp, which is off: add --sp"):
        make_plan(num_gpus=8, tp=8, seq_len=8192, family=Family(async_tp=True))


def test_explained(llama: Graph, system: System, lowered: Mapping[bool, Lowered]) -> None:
    text = explain_text(answer(llama, system, lowered, True), "reduce_scatter")
    assert "= max(0, time - products x (1 - 1/tp)); products: block0/%" in text
    assert Phase.REDUCE not in {p.phase for p in lowered[True].graph.region("block0").nodes if p.op == "all_gather"}


@settings(max_examples=60)
@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.integers(1, 64))
def test_a_ring_takes_the_longer_of_both_at_each_step(attention: float, ring: float, cp: int) -> None:
    """Of cp blocks, cp - 1 wait for an exchange of ring/(cp-1) seconds behind attention/cp, the last does not."""
    table = PlanTable.of([make_plan(num_gpus=1, seq_len=1, family=Family())])
    staging = StageProgram.of(ALONE).evaluate(table, Points(table))
    parts = {"compute.attention": np.array([attention]), RING: np.array([ring])}
    account = pass_account(parts, np.zeros(1), np.array([float(cp)]), staging, StepPolicy())
    steps = cp - 1
    by_step = attention / cp + steps * max(attention / cp, ring / steps) if steps else attention + ring
    total = float(account.exposed["compute.attention"][0] + account.exposed["comm.cp"][0])
    assert total == pytest.approx(by_step, rel=1e-9, abs=1e-12)
    assert float(account.hidden["comm.cp"][0] + account.exposed["comm.cp"][0]) == pytest.approx(ring)


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(0.01, 1.0))
def test_exchanges_hide_behind_another_micro_batch(compute: float, sent: float, share: float) -> None:
    """Hidden is the share that the stack lets run there, never more than the computation there is."""
    table = PlanTable.of([make_plan(num_gpus=1, seq_len=1, family=Family())])
    staging = StageProgram.of(ALONE).evaluate(table, Points(table))
    parts = {"compute.matmul": np.array([compute]), "comm.ep": np.array([sent])}
    zero, cp = np.zeros(1), np.ones(1)
    behind = pass_account(parts, zero, cp, staging, StepPolicy(overlap=Overlap(batches=share)))
    exposed = pass_account(parts, zero, cp, staging, StepPolicy())
    assert float(exposed.exposed["comm.ep"][0]) == sent
    assert float(behind.hidden["comm.ep"][0]) == min(sent * share, compute)
    assert float(behind.exposed["comm.ep"][0] + behind.hidden["comm.ep"][0]) == pytest.approx(sent)


def test_hidden_messages_of_fsdp_cost_computation_by_their_traffic(llama: Graph, system: System) -> None:
    """Eight ranks on NVLink receive 450 GB/s, written and read once: 0.27 of 3.35 TB/s, and 16 of 132 SMs."""
    plan = make_plan(num_gpus=8, seq_len=8192, family=Family(zero=3))
    policy = replace(StepPolicy.of(system), overlap=Overlap(contention=1.5))
    table = PlanTable.of([plan])
    share = float(np.asarray(policy.lost_share("comm.dp", table))[0])
    assert share == pytest.approx(16 / 132 + 1.5 * 2 * 450e9 / 3.35e12, rel=1e-6)
    assert policy.lost_share("comm.ep", table) == policy.sm_share
    steps = [
        estimate(llama, load_system("dgx-h100", [f"stack.overlap.contention={value}"]), plan) for value in (0.0, 1.5)
    ]
    hidden = float(steps[0].hidden_comm_s["comm.dp"])
    waiting = [dict(found.breakdown_s)["compute.lent_sms"] for found in steps]
    assert waiting[0] == pytest.approx(hidden * 16 / 132, rel=0.02)
    assert waiting[1] == pytest.approx(hidden * share, rel=0.02)


def test_a_slow_fabric_takes_little_memory_bandwidth(system: System) -> None:
    slow = load_system("dgx-h100", ["network.infiniband.bandwidth=12.5GB/s"])
    share = [float(memory_share(s.levels, 3.35e12, 64.0, 1.0)) for s in (system, slow)]
    # Eight adapters of 50, or 12.5, GB/s bring what each rank passes on to its node: below the 450 GB/s of NVLink.
    assert share == pytest.approx([2 * 8 * 50e9 / 3.35e12, 2 * 8 * 12.5e9 / 3.35e12])
