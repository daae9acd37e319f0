"""Graphs that `symbolic_trace`, `make_fx` and AOT make are, once run again, what the recorder writes of the module."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from types import MappingProxyType
from typing import TypeAlias

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F  # noqa: N812 - the field's name for it

import slipstick
from slipstick.ir.errors import NotUnderstoodError, TraceError, UnknownNameError, UnsupportedOpError, UsageError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.sizes.fixed_sizes import check_sizes

from .nets_traced import IDS, LAYERS, VOCAB, Net
from .sums import flops, num_ops

NET = Net()
Traced: TypeAlias = tuple[fx.GraphModule, tuple[object, ...]]
WEIGHTS = dict(NET.named_parameters())
SIZES = {"batch": float(IDS.shape[0]), "seq": float(IDS.shape[1])}
# Views move nothing; a fill makes the labels of a recording, which are an input here; whether a gradient is copied into
# another layout is known where autograd ran, not where the backward pass was derived.
NOT_COUNTED = ("reshape", "permute", "slice", "expand", "fill", "copy")


@cache
def symbolic() -> Traced:
    return fx.symbolic_trace(NET), (IDS,)


@cache
def with_open_sizes() -> Traced:
    return make_fx(NET, tracing_mode="symbolic", _allow_non_fake_inputs=True)(IDS), (IDS,)


@cache
def functional() -> Traced:
    run = make_fx(lambda p, ids: torch.func.functional_call(NET, p, (ids,)), tracing_mode="fake")
    return run(WEIGHTS, IDS), (WEIGHTS, IDS)


@cache
def before_dispatch() -> Traced:
    run = make_fx(lambda p, ids: torch.func.functional_call(NET, p, (ids,)), tracing_mode="fake", pre_dispatch=True)
    return run(WEIGHTS, IDS), (WEIGHTS, IDS)


ROADS: Mapping[str, Callable[[], Traced]] = MappingProxyType(
    {"symbolic": symbolic, "open sizes": with_open_sizes, "functional": functional, "before dispatch": before_dispatch}
)


@cache
def graph_of(road: str, phase: str) -> Graph:
    graph, inputs = ROADS[road]()
    return slipstick.trace_graph(graph, inputs, phase=phase)


@cache
def recorded(phase: str) -> Graph:
    return slipstick.trace(NET, IDS, phase=phase)


def totals(graph: Graph, phase: Phase) -> tuple[float, Counter[str]]:
    counted = num_ops(graph, phase)
    return float(flops(graph, phase).evaluate(SIZES)), Counter(
        {k: n for k, n in counted.items() if k not in NOT_COUNTED}
    )


@pytest.mark.parametrize(("road", "phase"), [*((road, "train") for road in ROADS), ("functional", "prefill")])
def test_every_trace_is_the_recording(road: str, phase: str) -> None:
    given, expected = graph_of(road, phase), recorded(phase)
    assert totals(given, Phase.FORWARD) == totals(expected, Phase.FORWARD)
    assert totals(given, Phase.BACKWARD) == totals(expected, Phase.BACKWARD)
    assert given.num_parameters == expected.num_parameters


@pytest.mark.parametrize("road", ["symbolic", "functional", "before dispatch"])
def test_layers_fold_by_modules_or_by_names_of_parameters(road: str) -> None:
    graph = graph_of(road, "train")
    assert [r.count for r in graph.schedule] == [1, LAYERS, 1]


def step(weights: Mapping[str, Tensor], ids: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    logits = torch.func.functional_call(NET, dict(weights), (ids,))
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return (loss, *torch.autograd.grad(loss, list(weights.values())))


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = NET

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.net(ids).flatten(0, 1), labels.flatten())


@cache
def stepped() -> fx.GraphModule:
    return make_fx(step, tracing_mode="fake")(WEIGHTS, IDS, IDS)


def untagged() -> Graph:
    return slipstick.trace_graph(stepped(), (WEIGHTS, IDS, IDS), phase="train")


def tagged() -> Graph:
    with ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, Loss(), (IDS, IDS)).graph_module
    examples = [n.meta["val"] for n in joint.graph.nodes if n.op == "placeholder"]
    return slipstick.trace_graph(joint, examples, phase="train")


@pytest.mark.parametrize("road", [untagged, tagged])
def test_a_joint_graph_brings_its_own_backward_pass(road: Callable[[], Graph]) -> None:
    given, expected = road(), recorded("train")
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert flops(given, phase) == pytest.approx(flops(expected, phase).evaluate(SIZES))
    counted = num_ops(given, Phase.BACKWARD)
    assert (counted["attention_bwd"], counted["cross_entropy_bwd"]) == (LAYERS, 1)
    assert sum(len(r.grads) * given.counts[r.name] for r in given.regions) == len(WEIGHTS)


def test_a_joint_graph_is_no_prefill() -> None:
    traced = stepped()
    with pytest.raises(NotUnderstoodError, match="holds a backward pass"):
        slipstick.trace_graph(traced, (WEIGHTS, IDS, IDS), phase="prefill")


def test_weights_are_left_as_they_were() -> None:
    net = Net()
    before = {n: (p, p.detach().clone()) for n, p in net.named_parameters()}
    slipstick.trace_graph(fx.symbolic_trace(net), (IDS,), phase="train")
    for name, parameter in net.named_parameters():
        assert parameter is before[name][0]
        assert torch.equal(parameter, before[name][1])
        assert parameter.grad is None


def masked(mask: Callable[[int], Tensor]) -> AttentionAttrs | None:
    """What the mask of attention became; None where it stayed a tensor."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(VOCAB, 32), nn.Linear(32, VOCAB)

        def forward(self, ids: Tensor) -> Tensor:
            b, t = ids.shape
            x = self.embed(ids).view(b, t, 4, 8).transpose(1, 2)
            y = F.scaled_dot_product_attention(x, x, x, attn_mask=mask(t))
            out: Tensor = self.head(y.transpose(1, 2).reshape(b, t, 32))
            return out

    open_sizes = {"ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", max=8192)}}
    program = torch.export.export(Masked(), (IDS,), dynamic_shapes=open_sizes)
    graph = slipstick.load_exported(program)
    attention = next(n for r in graph.regions for n in r.nodes if n.op == "attention")
    assert isinstance(attention.attrs, AttentionAttrs)
    return attention.attrs if len(attention.inputs) == 3 else None


def band(t: int, window: int) -> Tensor:
    distance = torch.arange(t)[:, None] - torch.arange(t)[None]
    return (distance >= 0) & (distance < window)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (lambda t: torch.ones(t, t).tril().bool(), (True, 0)),
        (lambda t: torch.full((t, t), float("-inf")).triu(1), (True, 0)),
        (lambda t: band(t, 5), (True, 5)),
        (lambda t: band(t, 4096), (True, 4096)),
        (lambda t: -(torch.arange(t)[:, None] - torch.arange(t)[None]).abs().float(), None),
    ],
    ids=["triangle", "added", "short window", "long window", "slopes"],
)
def test_a_mask_made_of_positions_is_an_attribute(
    mask: Callable[[int], Tensor], expected: tuple[bool, int] | None
) -> None:
    found = masked(mask)
    assert (found and (found.causal, found.window)) == expected


def test_a_plan_for_other_sizes_than_a_graph_has_is_refused() -> None:
    fixed, opened = graph_of("functional", "train"), graph_of("symbolic", "train")
    asked = slipstick.make_plan(
        num_gpus=1, family=slipstick.Family(workload=fixed.workload), micro_batch=4, seq_len=1024
    )
    with pytest.raises(UsageError, match="has fixed sizes: give --mbs 2 --seq 16"):
        check_sizes(fixed, asked)
    check_sizes(fixed, slipstick.make_plan(num_gpus=1, family=asked.family, micro_batch=2, seq_len=16))
    check_sizes(opened, asked)


def test_wrong_inputs_are_named() -> None:
    traced = fx.symbolic_trace(NET)
    with pytest.raises(UsageError, match=r"takes 1 inputs \(ids\), 2 are given"):
        slipstick.trace_graph(traced, (IDS, IDS))
    with pytest.raises(UnknownNameError, match="did you mean 'ids'"):
        slipstick.trace_graph(traced, (IDS,), dynamic={"idx": ("batch", "seq")})
    with pytest.raises(UsageError, match="name 1 dims, the example has 2"):
        slipstick.trace_graph(traced, (IDS,), dynamic={"ids": ("batch",)})


def test_a_graph_that_asks_for_values_is_refused_in_one_line() -> None:
    graph = fx.Graph()
    ids = graph.placeholder("ids")
    graph.output((ids, graph.call_function(bool, (graph.call_method("sum", (ids,)),))))
    with pytest.raises(TraceError, match="control flow depends on data: node 'bool_1'") as caught:
        slipstick.trace_graph(fx.GraphModule(nn.Module(), graph), (IDS,))
    assert "\n" not in str(caught.value)


def test_an_operator_without_a_rule_is_named_and_kept_on_request() -> None:
    graph = fx.Graph()
    weights = graph.call_method("float", (graph.placeholder("ids"),))
    largest = graph.call_function(torch.cummax, (weights, 1))
    graph.output(graph.call_function(operator.getitem, (largest, 0)))
    module = fx.GraphModule(nn.Module(), graph)
    with pytest.raises(UnsupportedOpError, match=r"'aten\.cummax'"):
        slipstick.trace_graph(module, (IDS,))
    kept = slipstick.trace_graph(module, (IDS,), allow_unpriced=True)
    assert num_ops(kept)["unpriced"] == 1
