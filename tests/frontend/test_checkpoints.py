"""Checkpoints in a user's own loop: what backward runs again is marked as that, in the module that it repeats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils.checkpoint import checkpoint

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.sizes.expr import total
from slipstick.passes.families import pipeline_for
from slipstick.passes.gathers import held_gathered

from .sums import flops, num_ops

WIDTH, HEADS, LAYERS = 64, 4, 3
IDS = torch.zeros(2, 16, dtype=torch.int64)
VIEWS = ("reshape", "permute", "slice", "expand")
Call = Callable[["Layer", Tensor], Tensor]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        made: Tensor = self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return made

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(x)
        out: Tensor = x + self.down(F.silu(self.up(x)))
        return out


class Net(nn.Module):
    def __init__(self, call: Call) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(100, WIDTH), nn.Linear(WIDTH, 100)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.call = call

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            x = self.call(layer, x)
        out: Tensor = self.head(x)
        return out


def plain(layer: Layer, x: Tensor) -> Tensor:
    out: Tensor = layer(x)
    return out


def kept(layer: Layer, x: Tensor, use_reentrant: bool) -> Tensor:
    out = checkpoint(layer, x, use_reentrant=use_reentrant)
    assert isinstance(out, Tensor)
    return out


def attention_kept(layer: Layer, x: Tensor) -> Tensor:
    x = x + checkpoint(layer.attend, x, use_reentrant=False)
    out: Tensor = x + layer.down(F.silu(layer.up(x)))
    return out


def traced(call: Call) -> Graph:
    return slipstick.trace(Net(call), IDS)


def at(graph: Graph, phase: Phase) -> float:
    return float(flops(graph, phase).evaluate({"batch": 2, "seq": 16}))


def step(graph: Graph, recompute: str, zero: int = 0, tp: int = 1, sp: bool = False) -> tuple[float, float, float]:
    family = slipstick.Family(recompute=recompute, zero=zero, sp=sp, tp_plan="auto")
    plan = slipstick.make_plan(num_gpus=8, tp=tp, seq_len=512, family=family, micro_batch=4)
    found = estimate(graph, slipstick.load_system("dgx-h100"), plan).metrics
    return float(found["step_time_s"]), float(found["mfu"]), float(found["peak_mem_bytes"])


def test_layers_checkpointed_by_hand_take_the_step_of_full_recomputation() -> None:
    by_hand, by_plan = traced(partial(kept, use_reentrant=False)), traced(plain)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert at(by_hand, phase) == at(by_plan, phase)
    for zero, tp, sp in ((0, 1, False), (2, 2, True), (3, 1, False), (3, 2, False), (3, 2, True)):
        assert step(by_hand, "none", zero, tp, sp) == pytest.approx(step(by_plan, "full", zero, tp, sp), rel=1e-12)


@pytest.mark.parametrize(
    "call",
    [plain, partial(kept, use_reentrant=False), partial(kept, use_reentrant=True)],
    ids=["plain", "kept", "reentrant"],
)
def test_stage_3_leaves_a_rank_its_share_of_the_weights(call: Call) -> None:
    graph = traced(call)
    for recompute in ("none", "full") if call is plain else ("none",):
        family = slipstick.Family(zero=3, recompute=recompute)
        lowered = pipeline_for(family).run(graph)[0]
        whole, share = (at_rest(lowered, dp) for dp in (1, 8))
        assert share == whole / 8 == 4 * sum(p.numel() for p in Net(plain).parameters()) / 8


class Sliced(nn.Module):
    """A layer that multiplies by a part of its parameter, and by another view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Parameter(torch.zeros(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + F.linear(F.linear(x, self.both[:WIDTH]), self.both.view(2, WIDTH, WIDTH)[1].t())


def test_stage_3_frees_what_a_layer_views_of_its_parameter() -> None:
    net = nn.Sequential(nn.Embedding(100, WIDTH), *(Sliced() for _ in range(LAYERS)), nn.Linear(WIDTH, 100))
    lowered = pipeline_for(slipstick.Family(zero=3)).run(slipstick.trace(net, IDS))[0]
    assert at_rest(lowered, 8) == at_rest(lowered, 1) / 8 == 4 * sum(p.numel() for p in net.parameters()) / 8


def at_rest(graph: Graph, dp: int) -> float:
    """Bytes of parameters that a rank holds all through a micro-batch, gathered ones included."""
    sizes = {"dp": float(dp), "tp": 1.0}
    held = (total(v.type.num_bytes for v in r.of_role(Role.PARAM)) + held_gathered(r) for r in graph.regions)
    found = zip(held, (graph.counts[r.name] for r in graph.regions), strict=True)
    return sum(float(num_bytes.evaluate(sizes)) * count for num_bytes, count in found)


def test_the_older_kind_runs_all_of_a_layer_again() -> None:
    graph, newer = traced(partial(kept, use_reentrant=True)), traced(partial(kept, use_reentrant=False))
    head = 2 * IDS.numel() * WIDTH * 100
    assert at(graph, Phase.RECOMPUTE) == at(graph, Phase.FORWARD) - head
    # The newer kind stops before the last product, whose result nothing in backward reads.
    last = LAYERS * 2 * IDS.numel() * 4 * WIDTH**2
    assert at(newer, Phase.RECOMPUTE) == at(graph, Phase.RECOMPUTE) - last


def test_what_runs_again_is_in_the_module_that_it_repeats() -> None:
    graph = traced(attention_kept)
    found = num_ops(graph, Phase.RECOMPUTE)
    assert (found["attention"], found["norm"], found["matmul"]) == (LAYERS, LAYERS, LAYERS)
    for region in graph.regions:
        by_key = {n.key: n for n in region.nodes}
        again = [n for n in region.nodes if n.phase is Phase.RECOMPUTE and n.op not in VIEWS]
        assert all(n.forward is not None and by_key[n.forward].scope == n.scope for n in again)
