"""Experts in a list: what runs routings on numbers takes as experts, with their FLOPs, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.ir.errors import TraceError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.sizes.expr import symbol
from tests.data import routed as nets

from .sums import flops

TOKENS = symbol("batch") * symbol("seq")
H, F, E, K = nets.HIDDEN, nets.FFN, nets.EXPERTS, nets.TOP_K


def ops(graph: Graph) -> list[str]:
    return [n.op for region in graph.regions for n in region.nodes]


@pytest.mark.parametrize(
    ("kind", "top_k", "matrices", "shared"),
    [
        (nets.ByWhere, K, 3, 1),
        (nets.ByOneHot, K, 3, 0),
        (nets.BySparseGates, K, 2, 0),
        (nets.BySorting, K, 3, 0),
        (nets.Switch, 1, 3, 0),
    ],
)
def test_a_token_costs_the_experts_it_goes_to(kind: type[nets.Routed], top_k: int, matrices: int, shared: int) -> None:
    """2 layers of a router, k experts of `matrices` products H x F and the shared one."""
    net = nets.Net(kind)
    graph = slipstick.trace(net, phase="prefill")
    a_token = 2 * (2 * (H * E + (top_k + shared) * matrices * H * F) + H * nets.VOCAB)
    assert flops(graph, Phase.FORWARD) == TOKENS * a_token
    assert graph.num_parameters == sum(p.numel() for p in net.parameters())
    assert ops(graph).count("experts") == 1
    assert f"{kind.__name__} sends every token to {top_k} of {E} experts (2 times" in " ".join(graph.notes)


def test_the_module_runs_as_before_and_as_much_as_it_counts() -> None:
    """FlopCounterMode counts what really runs: every token's two experts, whatever the loads."""
    torch.manual_seed(0)
    net, ids = nets.Net(nets.ByWhere), torch.randint(nets.VOCAB, (3, 7))
    before, numbers = net(ids), torch.get_rng_state()
    graph = slipstick.trace(net, phase="prefill")
    assert torch.equal(numbers, torch.get_rng_state())
    counter = FlopCounterMode(display=False)
    with counter:
        after = net(ids)
    assert torch.equal(before, after)
    assert counter.get_total_flops() == flops(graph, Phase.FORWARD).evaluate({"batch": 3, "seq": 7})


@pytest.mark.parametrize("kind", [nets.WithCapacity, nets.ByThreshold, nets.OnScaledRows, nets.OfTwice])
def test_what_is_not_proven_names_its_flag(kind: type[nets.Routed]) -> None:
    """Rows that are dropped, loads that no k says, another sum, and experts that multiply more than once."""
    with pytest.raises(TraceError, match=rf"--leaf '\S*routed\.{kind.__name__}=experts\(top_k=N\)'"):
        slipstick.trace(nets.Net(kind), phase="prefill")


def test_training_costs_twice_as_much_again_and_has_all_gradients() -> None:
    """Backward has two products for each of forward; experts are one operator, which expert parallelism splits."""
    net = nets.Net(nets.ByOneHot)
    graph = slipstick.trace(net)
    assert flops(graph, Phase.BACKWARD) == 2 * flops(graph, Phase.FORWARD)
    assert graph.num_parameters == sum(p.numel() for p in net.parameters())
    system = slipstick.load_system("dgx-h100")
    metrics = [
        estimate(
            graph,
            system,
            slipstick.make_plan(
                num_gpus=4, dp=4, ep=ep, seq_len=64, global_batch=8, family=slipstick.Family(ep=ep > 1)
            ),
        ).metrics
        for ep in (1, 4)
    ]
    assert metrics[1]["step_time_s"] > 0
    assert metrics[1]["peak_mem_bytes"] < metrics[0]["peak_mem_bytes"]
