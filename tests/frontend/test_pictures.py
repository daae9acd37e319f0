"""Vision models traced as they are: FLOPs as PyTorch counts them, kernels by hand, equal work on every replica."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils.flop_counter import FlopCounterMode

import slipstick
from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate
from slipstick.frontend.semantic.lift import lifted
from slipstick.ir.graph import Graph, Node, Phase
from slipstick.ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.placement import DP, PARTIAL, REPLICATE, Shard
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import as_expr, symbol
from slipstick.passes.manager import parse_pipeline

from .pictures import CHANNELS, SIDE, Decoder, Pointwise, ResNet, Windows
from .sums import flops, num_ops

NETS: dict[str, Callable[[], nn.Module]] = {"resnet": ResNet, "decoder": Decoder, "windows": Windows}
IMAGES = 2


def summed(out: object) -> Tensor:
    assert isinstance(out, Tensor)
    return out.sum()


def picture() -> Tensor:
    return torch.zeros(IMAGES, 3, SIDE, SIDE)


def trace(module: nn.Module, phase: str = "train") -> Graph:
    loss = summed if phase == "train" else None
    return slipstick.trace(module, picture(), {"x": ("batch", None, None, None)}, phase, loss=loss)


@cache
def traced(name: str, phase: str = "train") -> Graph:
    return trace(NETS[name](), phase)


def nodes(graph: Graph, op: str) -> list[Node]:
    return [n for r in graph.regions for n in r.nodes if n.op == op]


def counted(module: nn.Module, trains: bool) -> tuple[float, float]:
    """FLOPs of forward and of backward that PyTorch counts."""
    with FlopCounterMode(display=False) as counter:
        out = module.train(trains)(picture())
        forward = counter.get_total_flops()
        out.sum().backward()
    return forward, counter.get_total_flops() - forward


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["resnet", "decoder"])
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    forward, backward = counted(NETS[name](), trains=True)
    given = {"batch": float(IMAGES)}
    assert float(flops(traced(name)).evaluate(given)) == forward
    assert float(flops(traced(name), Phase.BACKWARD).evaluate(given)) == backward


@pytest.mark.parametrize("name", NETS)
def test_parameters_are_those_of_the_module(name: str) -> None:
    assert traced(name).num_parameters == as_expr(sum(p.numel() for p in NETS[name]().parameters()))


def test_batch_norms_and_pools_are_kernels_of_their_own() -> None:
    graph = traced("resnet")
    assert num_ops(graph)["channel_norm"] == num_ops(graph, Phase.BACKWARD)["channel_norm_bwd"] == 2
    assert num_ops(graph)["window"] == num_ops(graph, Phase.BACKWARD)["window_bwd"] == 1
    (pool,), (norm, _) = nodes(graph, "window"), nodes(graph, "channel_norm")
    assert pool.attrs == WindowAttrs("max", "abcd->abef,abef", 2 * 2)
    assert norm.attrs == ChannelNormAttrs("batch", "abcd,b,b->abcd,b,b")


def test_inference_reads_running_statistics() -> None:
    norm, _ = nodes(traced("resnet", "prefill"), "channel_norm")
    assert norm.attrs == ChannelNormAttrs("batch", "abcd,b,b,b,b->abcd", given=True)
    assert len(norm.outputs) == 1


def test_resampling_and_groups_are_kernels_of_their_own() -> None:
    """Four taps of a product and a sum each for a bilinear result; groups have statistics of each sample."""
    graph = traced("decoder")
    assert [n.attrs.fn for n in nodes(graph, "window") if isinstance(n.attrs, WindowAttrs)] == ["bilinear", "nearest"]
    assert nodes(graph, "window")[0].attrs == WindowAttrs("bilinear", "abcd->abef", 8)
    (norm,) = nodes(graph, "channel_norm")
    assert norm.attrs == ChannelNormAttrs("group", "abcd,e,e->abcd,af,af")


def test_windows_and_patches_keep_the_batch_open() -> None:
    graph = traced("windows")
    (unfolded, folded) = nodes(graph, "window")
    region = next(r for r in graph.regions if unfolded in r.nodes)
    patches = region.by_id[unfolded.outputs[0]].type.dims
    assert patches == (symbol("batch"), CHANNELS * 2 * 2, (SIDE // 2) ** 2)
    assert region.by_id[folded.outputs[0]].type.dims == (symbol("batch"), CHANNELS, SIDE, SIDE)


@pytest.mark.parametrize(
    ("act", "fns"),
    [
        (nn.Hardswish(), ("add", "clamp", "clamp", "mul", "div")),  # x min(max(x + 3, 0), 6) / 6
        (nn.Hardsigmoid(), ("add", "clamp", "clamp", "div")),
        (nn.Mish(), ("softplus", "tanh", "mul")),
        (nn.ReLU6(), ("clamp",)),
    ],
)
def test_pointwise_steps_are_one_kernel(act: nn.Module, fns: tuple[str, ...]) -> None:
    graph = trace(Pointwise(act))
    forward = [n for n in nodes(graph, "elementwise") if n.phase is Phase.FORWARD]
    assert [n.attrs for n in forward] == [ElementwiseAttrs(fns)]
    assert len([n for n in nodes(graph, "elementwise") if n.phase is Phase.BACKWARD]) == 1
    assert {n.scope for n in forward} == {"act"}


APART = [nn.GLU(1), nn.PReLU(CHANNELS), nn.LocalResponseNorm(2), nn.Softshrink(), nn.LPPool2d(2, 2)]


@pytest.mark.parametrize("act", APART)
def test_operators_without_a_rule_are_taken_apart(act: nn.Module) -> None:
    """What ATen makes of them has rules; steps have the module that called for them, in both phases."""
    graph = trace(Pointwise(act))
    assert {n.scope for r in graph.regions for n in r.nodes if n.phase is Phase.FORWARD} <= {"conv", "act", ""}
    assert any(n.scope == "act" and n.phase is Phase.BACKWARD for r in graph.regions for n in r.nodes)


def test_statistics_are_those_of_a_replica() -> None:
    """The default of PyTorch: each replica norms its own samples, and gradients of weights alone are summed."""
    graph = parse_pipeline("shard{zero=0}").run(traced("resnet"))[0]
    region = next(r for r in graph.regions if any(n.op == "channel_norm" for n in r.nodes))
    norm = next(n for n in region.nodes if n.op == "channel_norm")
    assert [region.by_id[o].placement(DP) for o in norm.outputs] == [Shard(0), REPLICATE, REPLICATE]
    back = next(n for n in region.nodes if n.op == "channel_norm_bwd")
    assert [region.by_id[o].placement(DP) for o in back.outputs] == [Shard(0), PARTIAL, PARTIAL]
    gathered = [n for r in graph.regions for n in r.nodes if n.op in ("all_gather", "all_to_all")]
    assert gathered == []


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("zero", [0, 3])
def test_a_gpu_works_no_more_among_64_than_alone(name: str, zero: int) -> None:
    def compute_s(dp: int) -> float:
        family = Family(zero=zero if dp > 1 else 0)
        plan = make_plan(num_gpus=dp, dp=dp, seq_len=1, global_batch=8 * dp, micro_batch=8, family=family)
        found = estimate(traced(name), load_system("dgx-h100"), plan).breakdown_s
        return sum(s for kind, s in found.items() if kind.startswith("compute") and kind != "compute.lent_sms")

    assert compute_s(64) <= compute_s(1) * 1.02


def test_sizes_that_are_whole_numbers_in_tensors_are_sizes() -> None:
    # Sides of a grid, as code reads them off `grid_thw`; an area of pixels is resampled by torch itself.
    high, wide = torch.tensor([2, 4])
    x = torch.arange(16.0).view(1, 1, 4, 4)
    expected = [F.interpolate(x, (2, 4), mode=mode) for mode in ("bilinear", "area")]
    with lifted(nn.Identity()):
        found = [F.interpolate(x, (high, wide), mode=mode) for mode in ("bilinear", "area")]  # pyright: ignore[reportArgumentType]
    assert all(map(torch.equal, found, expected))
