"""Modules whose sizes are rounded: strided convolutions, pooled and skipped tokens, blocks of a fixed length."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils.flop_counter import FlopCounterMode

from slipstick import Family, estimate, load_system, make_plan
from slipstick.frontend.module import trace
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.parse import parse_graph
from slipstick.ir.text import print_graph

from .sums import flops

HIDDEN, VOCAB, POOL = 32, 64, 4


class Frames(nn.Module):
    """Audio frames to one vector every four of them, by strided convolutions one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(8, HIDDEN, 3, stride=2), nn.Conv1d(HIDDEN, HIDDEN, 3, stride=2)])
        self.head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, frames: Tensor) -> Tensor:
        x = frames.transpose(1, 2)
        for conv in self.convs:
            x = F.gelu(conv(x))
        logits: Tensor = self.head(x.transpose(1, 2))
        return logits


class Pooled(nn.Module):
    """Means of every four tokens, those left over thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        b, n, d = x.shape
        logits: Tensor = self.head(x[:, : n // POOL * POOL].reshape(b, n // POOL, POOL, d).mean(2))
        return logits


class Skipped(Pooled):
    """Every second token."""

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(ids)[:, ::2])
        return logits


def example(module: nn.Module, batch: int = 2, length: int = 40) -> Tensor:
    if isinstance(module, Frames):
        return torch.zeros(batch, length, 8)
    return torch.zeros(batch, length, dtype=torch.int64)


def total(out: object) -> Tensor:
    assert isinstance(out, Tensor)
    return out.float().sum()


def traced(module: nn.Module) -> Graph:
    (name,) = ("frames",) if isinstance(module, Frames) else ("ids",)
    return trace(module, example(module), {name: ("batch", "seq")}, loss=total)


@pytest.fixture(scope="module", params=[Frames, Pooled, Skipped])
def module(request: pytest.FixtureRequest) -> nn.Module:
    made: nn.Module = request.param()
    return made


@pytest.mark.parametrize("length", [37, 38, 39, 40, 41])
def test_products_are_those_torch_counts_at_any_length(module: nn.Module, length: int) -> None:
    with FlopCounterMode(display=False) as counter:
        total(module(example(module, 3, length))).backward()  # type: ignore[no-untyped-call]
    graph = traced(module)
    ours = flops(graph) + flops(graph, Phase.BACKWARD)
    assert ours.evaluate({"batch": 3.0, "seq": float(length)}) == counter.get_total_flops()


def test_a_graph_with_rounded_sizes_is_read_as_it_is_printed(module: nn.Module) -> None:
    graph = traced(module)
    assert parse_graph(print_graph(graph)) == graph
    assert "floor(" in print_graph(graph)


def test_it_is_estimated_at_lengths_that_do_not_divide(module: nn.Module) -> None:
    graph, system = traced(module), load_system("dgx-h100")
    times = [
        estimate(graph, system, make_plan(num_gpus=2, seq_len=length, global_batch=8, family=Family(zero=1))).metrics[
            "step_time_s"
        ]
        for length in (65536, 65537, 131075)
    ]
    assert times[0] <= times[1] < times[2]
