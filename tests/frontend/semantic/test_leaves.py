"""Leaves of kernels: recurrences, attention to chosen keys; and a loss at each of several exits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import slipstick
from slipstick.frontend import leaves
from slipstick.ir.errors import UnknownNameError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops.fused.attention import AttentionAttrs

from ..sums import flops, num_ops

IDS = torch.zeros(2, 128, dtype=torch.int64)
VOCAB, HEADS, N, P, CHUNK, KEYS = 100, 4, 16, 32, 64, 24
BATCH, SEQ = 3, 256


class Kernel(nn.Module):
    """A kernel of its own, which cannot be recorded."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *gates: Tensor) -> Tensor:
        raise RuntimeError("runs on a device")


class Around(nn.Module):
    """What a kernel reads, all of ids: q, k [b, l, h, n], v [b, l, h, p] and a step [b, l, h]."""

    def __init__(self, swapped: bool = False) -> None:
        super().__init__()
        self.table, self.core, self.swapped = nn.Embedding(VOCAB, HEADS * (2 * N + P + 1)), Kernel(), swapped

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v, step = self.table(ids).split([HEADS * N, HEADS * N, HEADS * P, HEADS], -1)
        parts = [t.view(*ids.shape, HEADS, -1) for t in (q, k, v)]
        if self.swapped:
            parts, step = [t.transpose(1, 2) for t in parts], parts[0]
        made: Tensor = self.core(*parts, step).sum()
        return made


def at(graph: Graph, phase: Phase = Phase.FORWARD) -> float:
    return float(flops(graph, phase).evaluate({"batch": BATCH, "seq": SEQ}))


def test_a_recurrence_in_chunks_has_the_products_of_its_paper() -> None:
    """Linear attention in chunks of c: 2 c (n + p) inside and 4 n p with the state, a token and head."""
    declared: leaves.Leaves = {Kernel: lambda _: leaves.Recurrence("linear", CHUNK)}
    graph = slipstick.trace(Around(), IDS, leaves=declared, phase="train")
    forward = BATCH * SEQ * HEADS * (2 * CHUNK * (N + P) + 4 * N * P)
    assert at(graph) == forward
    assert at(graph, Phase.BACKWARD) >= 2 * forward


def test_a_kind_of_recurrence_that_is_none_is_named() -> None:
    with pytest.raises(UnknownNameError, match="delta"):
        leaves.Recurrence("detla")


def test_attention_to_chosen_keys_reads_those_alone() -> None:
    declared: leaves.Leaves = {Kernel: lambda _: leaves.Attention(keys=KEYS)}
    module = Around(swapped=True)
    graph = slipstick.trace(module, IDS, leaves=declared, phase="prefill")
    [node] = [n for r in graph.regions for n in r.nodes if n.op == "attention"]
    assert isinstance(node.attrs, AttentionAttrs)
    assert node.attrs.keys == KEYS


class Exits(nn.Module):
    """A head behind each of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(VOCAB, P), nn.Linear(P, VOCAB, bias=False)
        self.layers = nn.ModuleList(nn.Linear(P, P, bias=False) for _ in range(2))

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        x, made = self.table(ids), []
        for layer in self.layers:
            x = layer(x)
            made.append(self.head(x))
        return tuple(made)


def test_all_exits_are_trained() -> None:
    """Backward is twice forward: without the loss of the last exit the last layer would have none."""
    graph = slipstick.trace(Exits(), IDS, phase="train")
    forward = BATCH * SEQ * 2 * 2 * (P * P + P * VOCAB)
    assert (at(graph), at(graph, Phase.BACKWARD)) == (forward, 2 * forward)
    assert num_ops(graph)["cross_entropy"] == 2
    assert any("cross-entropies of 2 outputs" in note for note in graph.notes)
