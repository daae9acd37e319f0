"""Modules whose sizes are rounded: strided convolutions, pooled and skipped tokens, blocks of a fixed length."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils.flop_counter import FlopCounterMode

from slipstick import Family, load_system, make_plan
from slipstick.driver.estimate import estimate
from slipstick.frontend.module import trace
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

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


class Divided(Pooled):
    """The same means, of as many as torch says that there are."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        num = torch.div(x.shape[1], POOL, rounding_mode="trunc")
        logits: Tensor = self.head(x[:, : num * POOL].reshape(x.shape[0], num, POOL, HIDDEN).mean(2))
        return logits


class Skipped(Pooled):
    """Every second token."""

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(ids)[:, ::2])
        return logits


class Blocks(Pooled):
    """Attention within blocks of eight tokens, of lengths that eight divides."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        b, n, d = x.shape
        x = x.view(b, n // 8, 8, d)
        logits: Tensor = self.head((torch.softmax(x @ x.transpose(2, 3), -1) @ x).reshape(b, n, d))
        return logits


class PaddedBlocks(Pooled):
    """The same of any length, filled up."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        b, n, d = x.shape
        x = F.pad(x, (0, 0, 0, -n % 8)).view(b, (n + -n % 8) // 8, 8, d)
        x = torch.softmax(x @ x.transpose(2, 3), -1) @ x
        logits: Tensor = self.head(x.reshape(b, n + -n % 8, d)[:, :n])
        return logits


def example(module: nn.Module, batch: int = 2, length: int = 40) -> Tensor:
    if isinstance(module, Frames):
        return torch.zeros(batch, length, 8)
    return torch.zeros(batch, length, dtype=torch.int64)


def total(out: object) -> Tensor:
    assert isinstance(out, Tensor)
    return out.float().sum()


def traced(module: nn.Module, length: int = 40) -> Graph:
    (name,) = ("frames",) if isinstance(module, Frames) else ("ids",)
    return trace(module, example(module, length=length), {name: ("batch", "seq")}, loss=total)


@pytest.fixture(scope="module", params=[Frames, Pooled, Skipped])
def module(request: pytest.FixtureRequest) -> nn.Module:
    made: nn.Module = request.param()
    return made


def flops_of(module: nn.Module, length: int) -> tuple[float, int]:
    """FLOPs of a step by the graph and by torch."""
    with FlopCounterMode(display=False) as counter:
        total(module(example(module, 3, length))).backward()  # type: ignore[no-untyped-call]
    graph = traced(module, length)
    ours = flops(graph) + flops(graph, Phase.BACKWARD)
    return float(ours.evaluate({"batch": 3.0, "seq": float(length)})), counter.get_total_flops()


@pytest.mark.parametrize("length", [37, 40])
def test_products_are_those_torch_counts_at_any_length(module: nn.Module, length: int) -> None:
    ours, theirs = flops_of(module, length)
    assert ours == theirs


def test_a_graph_with_rounded_sizes_is_read_as_it_is_printed(module: nn.Module) -> None:
    graph = traced(module)
    assert parse_graph(print_graph(graph)) == graph
    assert "floor(" in print_graph(graph)


def test_it_is_estimated_where_it_was_recorded(module: nn.Module) -> None:
    graph, system, family = traced(module, 65536), load_system("dgx-h100"), Family(zero=1)
    times = [
        estimate(graph, system, make_plan(num_gpus=2, seq_len=length, global_batch=8, family=family)).metrics
        for length in (65536, 131072)
    ]
    assert times[0]["step_time_s"] < times[1]["step_time_s"]


@pytest.mark.parametrize("length", [41, 48])
def test_blocks_that_are_filled_up_are_of_any_length(length: int) -> None:
    ours, theirs = flops_of(PaddedBlocks(), length)
    assert ours == theirs


def test_blocks_that_are_not_are_of_lengths_that_divide() -> None:
    ours, theirs = flops_of(Blocks(), 48)
    assert ours == theirs
    graph = traced(Blocks())
    (bound,) = graph.bounds
    assert (bound.name, bound.step) == ("seq", 8)
    with pytest.raises(UsageError, match="steps of 8"):
        estimate(graph, load_system("dgx-h100"), make_plan(num_gpus=1, seq_len=8193, family=Family()))
    assert traced(Blocks(), 41).bounds == graph.bounds


def test_sizes_that_torch_divides_are_sizes() -> None:
    ids = torch.zeros(2, 10, dtype=torch.int64)
    assert flops(trace(Divided(), ids)) == flops(trace(Pooled(), ids))
