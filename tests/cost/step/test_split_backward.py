"""Gradients of weights: which backward nodes they are, how much they compute, how long they take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.cost.step.split_backward import weight_gradients
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph, Phase, Region
from slipstick.ir.ops import work_of
from slipstick.ir.plan import Family
from slipstick.ir.plan.layout.stages import BOUNDARY

Traced = Callable[[str], Graph]
MODELS = ["tiny-llama", "tiny-gpt2", "tiny-mixtral"]
FAMILIES = [Family(pp=True), Family(pp=True, sp=True, zero=1), Family(pp=True, zero=3, recompute="full")]
ENV = {"batch": 2, "mbs": 2, "seq": 64, "tp": 2, "dp": 2, "pp": 2, "up": 1, "cp": 1, "ep": 1, "fsdp": 1}


def products(region: Region, phase: Phase, only: frozenset[tuple[str, int]] | None = None) -> float:
    """FLOPs of the matrix products of a phase, of some nodes or of all."""
    nodes = [n for n in region.nodes if n.phase is phase and n.op in ("matmul", "grouped_matmul")]
    kept = [n for n in nodes if only is None or (region.name, n.key) in only]
    return sum(float(work_of(region, n).tensor_flops.evaluate(ENV)) for n in kept)


# Under sequence parallelism a router works on shards forward and on the whole backward.
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("model", MODELS[:2])
def test_weights_take_as_many_flops_as_the_forward_phase(traced: Traced, model: str, family: Family) -> None:
    """dW = x^T dy has the FLOPs of y = x W, for every product with a weight; half of the backward phase's products."""
    graph = lower(traced(f"{model}.train"), family).graph
    found = weight_gradients(graph)
    for region in graph.regions:
        if region.name.startswith("block"):
            forward = products(region, Phase.FORWARD)
            assert products(region, Phase.BACKWARD, found) == pytest.approx(forward)
            assert products(region, Phase.BACKWARD) == pytest.approx(2 * forward)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("model", MODELS)
def test_nothing_that_is_passed_on_waits_for_weights(traced: Traced, model: str, family: Family) -> None:
    graph = lower(traced(f"{model}.train"), family).graph
    found = weight_gradients(graph)
    for region in graph.regions:
        made = {o for n in region.nodes if (region.name, n.key) in found for o in n.outputs}
        read = {
            i for n in region.nodes if n.phase is Phase.BACKWARD and (region.name, n.key) not in found for i in n.inputs
        }
        assert made.isdisjoint(read)
        assert made.isdisjoint(p.value for p in region.outputs)


def test_the_ends_of_a_model(traced: Traced) -> None:
    """Behind the embedding nothing waits for the backward phase; messages between stages make no gradients."""
    graph = lower(traced("tiny-llama.train"), Family(pp=True)).graph
    found = weight_gradients(graph)
    first = graph.region(graph.sequence_once()[0])
    assert {n.key for n in first.nodes if n.phase is Phase.BACKWARD} == {k for name, k in found if name == first.name}
    assert BOUNDARY not in {name for name, _ in found}


def test_attention_is_no_gradient_of_a_weight(traced: Traced) -> None:
    graph = lower(traced("tiny-llama.train"), Family(pp=True)).graph
    ops = {graph.region(name).producer[key].op for name, key in weight_gradients(graph)}
    assert "matmul" in ops
    assert not ops & {"attention_bwd", "rope_bwd", "cross_entropy_bwd", "norm_bwd"}
