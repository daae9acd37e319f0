"""Sums and norms that are part of the all-reduce before them, and how kernels of a graph follow one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from slipstick.backends.kernels.terms import KernelTimes
from slipstick.backends.machine.load import load_stack, load_system
from slipstick.backends.pricing.riding import along
from slipstick.driver.estimate import Lowered, estimate, lower
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan

ENGINES = ("vllm", "sglang", "tensorrt-llm", "lmdeploy")


@pytest.fixture(scope="module")
def fused(traced: Callable[[str], Graph]) -> Lowered:
    graph = traced("tiny-llama.decode")
    return lower(graph, Family(workload=graph.workload, kernels="fused"))


def times(lowered: Lowered, tp: int, *overrides: str) -> Mapping[str, float]:
    """Seconds of every kernel and message of the block."""
    family = Family(workload=lowered.source.workload, kernels="fused")
    plan = make_plan(num_gpus=tp, tp=tp, seq_len=40, kv_len=40, family=family)
    answer = estimate(lowered.source, load_system("dgx-h100", overrides), plan, lowered=lowered)
    return {e.name: seconds for e, seconds in answer.table.timing.rows() if e.region == "block0"}


def test_what_rides_keeps_its_bytes_and_arithmetic() -> None:
    terms = {"overhead": np.array([[2.0], [2.0]]), "memory": np.array([[3.0], [3.0]]), "rows": np.array([[5.0], [5.0]])}
    found = along(KernelTimes(np.array([[7.0], [7.0]]), terms), np.array([[False], [True]]))
    assert found.time_s.tolist() == [[7.0], [3.0]]
    assert {name: t.tolist() for name, t in found.terms.items()} == {
        "overhead": [[2.0], [0.0]], "memory": [[3.0], [3.0]], "rows": [[5.0], [0.0]],
    }  # fmt: skip


def test_norms_ride_where_there_are_several_ranks(fused: Lowered) -> None:
    alone, apart = (times(fused, tp, "stack.fused_all_reduce=false") for tp in (1, 2))
    assert times(fused, 1, "stack.fused_all_reduce=true") == alone
    together = times(fused, 2, "stack.fused_all_reduce=true")
    sums = [k for k, t in apart.items() if together[k] != t]
    assert [fused.graph.region("block0").producer[int(k.rpartition("%")[2])].op for k in sums] == ["norm", "norm"]
    # Six rows of 64 at 2 bytes and a weight are nanoseconds.
    assert all(together[k] < 0.05e-6 < 1e-6 < apart[k] for k in sums)


def test_a_kernel_takes_its_own_time_or_that_to_issue_it(fused: Lowered) -> None:
    fast, slow = (times(fused, 1, f"stack.cuda_graph={on}") for on in ("true", "false"))
    kernels = [k for k, t in fast.items() if t > 0.0]
    assert len(kernels) == 9
    # The default stack issues a kernel in 5 us, in a graph in 1 us; the time of a kernel holds its launch.
    assert all(slow[k] == pytest.approx(max(fast[k], 5e-6)) for k in kernels)
    assert all(fast[k] >= 1e-6 for k in kernels)
    assert max(fast[k] for k in kernels if "block0/%27" in k) < 2.5e-6


@pytest.mark.parametrize("name", ENGINES)
def test_engines_run_fused_kernels(name: str) -> None:
    stack = load_stack(name)
    assert (stack.decides.kernels, stack.library) == ("fused", "vllm")
    assert stack.cuda_graph == stack.custom_all_reduce == (name != "lmdeploy")
    assert stack.fused_all_reduce == (name == "tensorrt-llm")
    assert load_system("dgx-h100", stack=name).stack.spacing_s == (3e-6 if name == "lmdeploy" else 1e-6)
