"""Torch's own attention, transformer and recurrent layers, and functions that its kernels take apart themselves."""

from __future__ import annotations

from math import prod

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

import slipstick
from slipstick.ir.errors import TraceError
from slipstick.ir.graph import Graph, Phase

from .sums import flops, num_ops

BATCH, SEQ, WIDTH, HEADS, INNER, HIDDEN = 2, 16, 32, 4, 64, 24
X = torch.zeros(BATCH, SEQ, WIDTH)


def first(out: object) -> Tensor:
    while isinstance(out, tuple):
        out = out[0]
    assert isinstance(out, Tensor)
    return out.sum()


def traced(module: nn.Module, x: Tensor = X, phase: str = "train") -> Graph:
    dynamic = None if x.dim() > 2 else {"input": ("batch", None)}
    return slipstick.trace(module, x, dynamic, phase=phase, loss=first if phase == "train" else None)


def at(graph: Graph, phase: Phase = Phase.FORWARD) -> float:
    return float(flops(graph, phase).evaluate({"batch": BATCH, "seq": SEQ}))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("phase", ["train", "prefill"])
def test_attention_inside_of_torchs_own_layer_is_one_operator(norm_first: bool, phase: str) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True, norm_first=norm_first)
    graph = traced(layer, phase=phase)
    assert num_ops(graph)["attention"] == 1
    # q, k, v and o: 4 width^2 a token; two products over all pairs; up and down.
    tokens = BATCH * SEQ
    assert at(graph) == 2 * tokens * (4 * WIDTH**2 + 2 * SEQ * WIDTH + 2 * WIDTH * INNER)
    assert graph.num_parameters == sum(p.numel() for p in layer.parameters())


def test_attention_of_three_and_five_dims_is_that_of_four() -> None:
    class Attend(nn.Module):
        def __init__(self, *lead: int) -> None:
            super().__init__()
            self.lead, self.project = lead, nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            q = self.project(x).unflatten(-1, (*self.lead, WIDTH // prod(self.lead))).movedim(1, -2)
            return F.scaled_dot_product_attention(q, q, q)

    per_pair = 4 * BATCH * SEQ**2 * WIDTH
    for lead in ((), (HEADS,), (2, HEADS)):
        graph = traced(Attend(*lead))
        assert num_ops(graph)["attention"] == 1
        assert at(graph) == 2 * BATCH * SEQ * WIDTH**2 + per_pair


@pytest.mark.parametrize(("make", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("ways", [1, 2])
def test_a_recurrent_layer_is_a_product_of_what_comes_in_one_a_step_and_a_scan(
    make: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN], gates: int, ways: int
) -> None:
    layer = make(WIDTH, HIDDEN, num_layers=2, bidirectional=ways == 2, batch_first=True)
    graph = traced(layer)
    # Each gate of each layer and way meets what comes in, of the second layer the states of all ways, and the state.
    weights = ways * gates * HIDDEN * ((WIDTH + HIDDEN) + (ways * HIDDEN + HIDDEN))
    assert at(graph) == 2 * BATCH * SEQ * weights
    # What comes in to the first layer, the input, wants no gradient.
    unasked = 2 * BATCH * SEQ * ways * gates * HIDDEN * WIDTH
    assert at(graph, Phase.BACKWARD) == 2 * at(graph) - unasked
    assert num_ops(graph)["scan"] == (0 if make is nn.RNN else 2 * ways)
    assert graph.num_parameters == sum(p.numel() for p in layer.parameters())


def test_a_state_that_is_learned_gets_its_gradient() -> None:
    class Begun(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(WIDTH, HIDDEN, proj_size=8, batch_first=True)
            self.h, self.c = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.zeros(1, 1, HIDDEN))

        def forward(self, x: Tensor) -> Tensor:
            begin = (self.h.expand(-1, x.shape[0], -1), self.c.expand(-1, x.shape[0], -1))
            out: Tensor = self.layer(x, begin)[0]
            return out

    graph = traced(Begun())
    given = {region.by_id[p].name for region in graph.regions for p, _ in region.grads}
    assert {"h", "c", "layer.weight_hr_l0"} <= given
    assert at(graph) == 2 * BATCH * SEQ * (4 * HIDDEN * (WIDTH + 8) + HIDDEN * 8)


def test_a_packed_sequence_is_refused_with_what_to_give_instead() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(nn.GRU(WIDTH, HIDDEN, bias=False).parameters())

        def forward(self, x: Tensor) -> Tensor:
            rows, sizes, h = x.flatten(0, 1), torch.full((SEQ,), BATCH), x.new_zeros(1, BATCH, HIDDEN)
            return torch.gru(rows, sizes, h, list(self.weights), False, 1, 0.0, False, False)[0]

    with pytest.raises(TraceError, match=r"PackedSequence.*padded batch"):
        traced(Packed())


def test_cells_and_bags_take_an_open_batch() -> None:
    rows = torch.zeros(BATCH, WIDTH)
    for cell, gates in ((nn.GRUCell(WIDTH, HIDDEN), 3), (nn.LSTMCell(WIDTH, HIDDEN), 4)):
        assert at(traced(cell, rows)) == 2 * BATCH * gates * HIDDEN * (WIDTH + HIDDEN)
    for mode in ("sum", "mean", "max"):
        bag = traced(nn.EmbeddingBag(100, WIDTH, mode=mode), torch.zeros(BATCH, SEQ, dtype=torch.int64))
        assert num_ops(bag)["embedding"] == 1
        assert num_ops(bag, Phase.BACKWARD)["embedding_bwd"] == 1


def test_distances_are_one_product_with_norms_beside() -> None:
    class Distances(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cdist(self.project(x), x).lerp(x @ x.transpose(1, 2), 0.5)

    tokens = BATCH * SEQ
    want = 2 * tokens * (WIDTH**2 + SEQ * (WIDTH + 2) + SEQ * WIDTH)
    assert at(traced(Distances())) == want
