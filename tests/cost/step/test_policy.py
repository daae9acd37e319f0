"""What the host takes, and what hides beside messages, in steps whose times are given by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.stack import HostFloor, Overlap
from slipstick.backends.machine.system import System
from slipstick.cost.step.beside import HiddenMessages
from slipstick.cost.step.policy import StepPolicy, floored
from slipstick.driver.estimate import Lowered, estimate, lower
from slipstick.frontend import load
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.plan import Family, PlanTable, make_plan


def one(value: float) -> np.ndarray:
    return np.array([value])


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 30))
def test_a_layer_takes_what_the_slower_takes_at_least_and_both_at_most(device: float, host: float, q: float) -> None:
    found = float(floored(one(device), one(host), q)[0])
    assert max(device, host) * (1 - 1e-12) <= found <= (device + host) * (1 + 1e-9)


def test_a_host_without_cost_changes_nothing() -> None:
    assert float(floored(one(0.3), one(0.0), 6.0)[0]) == 0.3


def test_a_layers_host_time_grows_with_the_ranks() -> None:
    host = HostFloor(layer_s=1.0, layer_tp_s=2.0, layer_rank_s=0.5, layer_far_rank_s=0.25)
    plans = PlanTable.of([make_plan(num_gpus=16, tp=tp, seq_len=64, family=Family()) for tp in (1, 8, 16)])
    # 1 + 0.5; 1 + 2 + 8/2; 1 + 2 + 16/2 + 8/4
    assert StepPolicy(host).layer_s(plans).tolist() == [1.5, 7.0, 13.0]


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return load("llama-2-7b", "train", "bf16", None, None)


def _step(graph: Graph, system: System, done: Lowered, family: Family, tp: int = 1) -> dict[str, float]:
    plan = make_plan(num_gpus=tp, tp=tp, seq_len=256, micro_batch=1, global_batch=4, family=family)
    return dict(estimate(graph, system, plan, lowered=done).breakdown_s)


def test_a_slow_host_sets_the_pace(tiny: Graph) -> None:
    done = lower(tiny, Family())
    system = load_system("dgx-h100", ["stack.host.layer=1s", "stack.host.micro_batch=2s", "stack.host.step=3s"])
    found = _step(tiny, system, done, Family())
    # 32 layers and 4 micro-batches of a second each are far above what the device needs.
    assert sum(found.values()) == pytest.approx(32 * 4 * 1.0 + 4 * 2.0 + 3.0, rel=5e-3)
    assert found["host"] > 0.9 * sum(found.values())


def test_recomputed_layers_are_issued_once_more(tiny: Graph) -> None:
    system = load_system("dgx-h100", ["stack.host.layer=1s"])
    plain, again = (_step(tiny, system, lower(tiny, f), f) for f in (Family(), Family(recompute="full")))
    # a third more, but for the kernels whose results nothing needs a second time
    assert 1.2 < sum(again.values()) / sum(plain.values()) < 4 / 3


def test_gradients_of_weights_run_beside_tensor_parallel_messages(tiny: Graph) -> None:
    done = lower(tiny, Family())
    shown, hidden = (
        _step(tiny, load_system("dgx-h100", [f"stack.overlap.tp={share}"]), done, Family(), 8)["comm.tp"]
        for share in (0, 1)
    )
    assert 0 < hidden < shown


def test_no_more_hides_than_there_is_to_hide_behind(tiny: Graph) -> None:
    """Over a network of 1 GB/s messages take far longer than all products; behind these alone a message hides.

    What runs beside them are the gradients of weights, a third of the products, and their sums.
    """
    done = lower(tiny, Family())
    system = load_system("dgx-h100", ["stack.overlap.tp=1", "network.nvlink.bandwidth=1GB/s"])
    plan = make_plan(num_gpus=8, tp=8, seq_len=256, micro_batch=1, global_batch=4, family=Family())
    found = estimate(tiny, system, plan, lowered=done)
    behind = found.breakdown_s["compute.matmul"] / 2 + found.breakdown_s["compute.elementwise"]
    assert found.breakdown_s["comm.tp"] > 10 * behind
    assert 0 < found.hidden_comm_s["comm.tp"] <= behind


def test_what_runs_beside_a_message_neither_makes_nor_needs_it(tiny: Graph) -> None:
    done = lower(tiny, Family())
    beside = HiddenMessages.of(done.graph)
    block = next(r for r in done.graph.regions if r.name == "block0")
    phases = {n.key: n.phase for n in block.nodes}
    ops = {n.key: n.op for n in block.nodes}
    messages = [k for region, k in beside.messages["tp"] if region == "block0"]
    windows = {ops[k] for region, k in beside.windows["tp"] if region == "block0"}
    # Forward, everything waits for the all-reduce; backward, the gradients of weights do not.
    assert [phases[k] for k in messages] == [Phase.BACKWARD] * 2
    assert windows == {"matmul", "accumulate"}


def test_overlap_is_what_the_stack_says() -> None:
    assert StepPolicy.of(load_system("dgx-h100")).overlap == Overlap()


def test_without_messages_to_wait_for_a_step_is_its_computation(tiny: Graph) -> None:
    free = [
        "network.nvlink.bandwidth=100PB/s", "network.nvlink.latency=0s", "network.infiniband.bandwidth=100PB/s",
        "network.infiniband.latency=0s", "stack.collective_overhead=0s", "stack.rank_spread=0",
        *(f"calibration.collective.nccl.{key}=0s" for key in ("overhead", "step", "issue")),
    ]  # fmt: skip
    family = Family(sp=True, zero=1)
    done = lower(tiny, family)
    plan = make_plan(num_gpus=16, tp=8, seq_len=2048, global_batch=8, family=family)
    found = estimate(tiny, load_system("dgx-h100", free), plan, lowered=done)
    computed = sum(s for part, s in found.breakdown_s.items() if part.startswith("compute.") or part == "optimizer")
    assert found.breakdown_s["bubble"] == 0.0
    assert found.metrics["step_time_s"] == pytest.approx(computed, rel=2e-3)


def test_a_reader_is_told_of_a_full_device_and_of_a_slow_host(tiny: Graph) -> None:
    done, family = lower(tiny, Family()), Family()
    plan = make_plan(num_gpus=8, tp=8, seq_len=256, family=family)
    slow = estimate(tiny, load_system("dgx-h100", ["stack.host.layer=50ms"]), plan, lowered=done)
    assert any("wait" in line and "'default'" in line for line in slow.warnings)
    need = slow.metrics["peak_mem_bytes"]
    for share, told in ((0.95, True), (0.8, False)):
        system = load_system("dgx-h100", [f"chip.memory.hbm.capacity={need / share:.0f}B"])
        warnings = estimate(tiny, system, plan, lowered=done).warnings
        assert any("allocators" in line for line in warnings) is told
