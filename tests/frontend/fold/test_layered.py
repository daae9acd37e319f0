"""A graph that is not folded: each layer is a region of its own, all of them together are the graph in one piece."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import slipstick
from slipstick import Family
from slipstick.driver.estimate import estimate
from slipstick.frontend.fold import trace as tracing
from slipstick.frontend.fold.layered import whole
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.layers import is_layer, num_layers
from slipstick.ir.verify import verify

from ..sums import flops, moved_bytes

SYSTEM = slipstick.load_system("dgx-h100")
PICTURE = torch.rand(2, 3, 16, 16)


def added(output: object) -> Tensor:
    """A loss of a picture or of logits."""
    assert isinstance(output, Tensor)
    return output.sum()


def twice(x: Tensor) -> Tensor:
    """Each place of a picture four times."""
    b, c, h, w = x.shape
    return x[:, :, :, None, :, None].expand(b, c, h, 2, w, 2).reshape(b, c, 2 * h, 2 * w)


class Narrowing(nn.Module):
    """Stages of growing widths down and up again, with skips from each to its counterpart: no two are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.ModuleList(nn.Sequential(nn.Conv2d(w, w, 3, padding=1), nn.SiLU()) for w in (8, 16))
        self.halve = nn.ModuleDict({f"to{2 * w}": nn.Conv2d(w, 2 * w, 2, 2) for w in (8, 16)})
        self.up = nn.ModuleList(nn.Sequential(nn.Conv2d(3 * w, w, 3, padding=1), nn.SiLU()) for w in (16, 8))
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a picture."""
        x, skips = self.stem(x), []
        for layer, halve in zip(self.down, self.halve.values(), strict=True):
            x = x + layer(x)
            skips.append(x)
            x = halve(x)
        for layer in self.up:
            x = layer(torch.cat((twice(x), skips.pop()), 1))
        picture: Tensor = self.out(x)
        return picture


class Chain(nn.Module):
    """Convolutions of growing widths in a row, and activations that are no layers."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 8, 16, 32)
        self.features = nn.Sequential(*(m for a, b in pairwise(widths) for m in (nn.Conv2d(a, b, 3, 2, 1), nn.ReLU())))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.features(x).flatten(2).mean(2))
        return logits


class Beside(nn.Module):
    """Heads that all read one tensor: a list whose members do not follow one another."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Conv2d(3, k, 1) for k in (2, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Return what all heads say."""
        return torch.cat([head(x) for head in self.heads], 1)


MODULES = {"narrowing": (Narrowing, 4), "chain": (Chain, 3)}


def traced(module: nn.Module, monkeypatch: pytest.MonkeyPatch, cut: bool = True) -> Graph:
    """The graph of a module that nothing folds."""
    monkeypatch.setattr(tracing, "find_stack", lambda module, idle: None)
    monkeypatch.setattr(tracing, "fold_by_scope", whole)
    if not cut:
        monkeypatch.setattr(tracing, "in_layers", lambda graph: graph)
    return slipstick.trace(module, PICTURE, dynamic={"x": ("batch",)}, phase="train", loss=added)


@pytest.mark.parametrize("name", MODULES)
def test_layers_apart_add_up_to_the_graph_in_one_piece(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, layers = MODULES[name]
    apart = traced(module(), monkeypatch)
    piece = traced(module(), monkeypatch, cut=False)
    verify(apart)
    assert (num_layers(apart), num_layers(piece)) == (layers, 0)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert flops(apart, phase) == flops(piece, phase)
    assert moved_bytes(apart) == moved_bytes(piece)
    assert apart.num_parameters == piece.num_parameters
    assert apart.saved_bytes == piece.saved_bytes
    names = [{v.name for v in r.of_role(Role.PARAM)} for r in (*apart.regions, *piece.regions)]
    assert set().union(*names[: len(apart.regions)]) == set().union(*names[len(apart.regions) :])


@pytest.mark.parametrize("name", ["conv, relu", "conv, norm, relu", "norm, relu, conv"])
def test_a_layer_of_a_sequence_begins_with_a_matrix(name: str) -> None:
    """Of unlike members in a row, norms and activations belong to the convolution before, the first to the next."""
    widths, before = (3, 8, 16, 32), name.startswith("norm")

    def member(kind: str, a: int, b: int) -> nn.Module:
        norm = nn.GroupNorm(1, a if before else b)
        return {"conv": nn.Conv2d(a, b, 3, 2, 1), "norm": norm, "relu": nn.ReLU()}[kind]

    chain = Chain()
    chain.features = nn.Sequential(*(member(kind, a, b) for a, b in pairwise(widths) for kind in name.split(", ")))
    graph = slipstick.trace(chain, PICTURE, dynamic={"x": ("batch",)}, phase="train", loss=added)
    verify(graph)
    layers = [graph.region(name) for name in graph.sequence() if is_layer(name)]
    kernels = [[v.type.dims for v in r.of_role(Role.PARAM) if v.type.rank == 4] for r in layers]
    assert kernels == [[(b, a, 3, 3)] for a, b in pairwise(widths)]
    assert num_layers(graph) == 3
    assert graph.num_parameters == sum(p.numel() for p in chain.parameters())


def test_what_runs_between_layers_belongs_to_the_layer_before(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(Narrowing(), monkeypatch)
    kernels = {
        run.regions[0]: sorted(v.name for v in graph.region(run.regions[0]).of_role(Role.PARAM) if v.type.rank > 1)
        for run in graph.schedule
    }
    assert kernels == {
        "prologue": ["stem.weight"],
        "block0": ["down.0.0.weight", "halve.to16.weight"],
        "block1": ["down.1.0.weight", "halve.to32.weight"],
        "block2": ["up.0.0.weight"],
        "block3": ["up.1.0.weight"],
        "epilogue": ["out.weight"],
    }


def test_each_layer_is_recomputed_a_stage_and_a_unit_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recomputed layers keep their inputs alone, stages have two layers each, and one unit is gathered at a time."""
    graph = traced(Narrowing(), monkeypatch)

    def answer(num_gpus: int, family: Family, pp: int = 1) -> slipstick.Estimate:
        plan = slipstick.make_plan(num_gpus=num_gpus, seq_len=1, family=family, micro_batch=8, pp=pp)
        return estimate(graph, SYSTEM, plan)

    kept, again = answer(1, Family()), answer(1, Family(recompute="full"))
    assert again.memory_bytes["activations"] < kept.memory_bytes["activations"]
    staged = answer(2, Family(pp=True), pp=2)
    assert str(staged.table.staging.layouts[0]) == "2 (x2)"
    # In front of each layer and behind the last one: the stem's 8 channels; the first skip and its half, 16 channels of
    # 8 x 8; the first skip and, put together behind the layer before, 32 channels from below, twice as high and wide,
    # with the second skip; the same of 16 channels and the first skip; the last 8.
    lowered = staged.table.lowered.graph
    borders = next(run.regions for run in lowered.schedule if not run.count)
    sent = [
        [r.by_id[n.key].type for n in r.nodes if n.op == "recv" and n.phase is Phase.FORWARD]
        for r in map(lowered.region, borders)
    ]
    wide, half = 16 * 16, 8 * 8
    below = [8 * wide, 8 * wide + 16 * half, 8 * wide + (32 + 16) * half, (16 + 8) * wide, 8 * wide]
    assert [sum(float(t.numel.evaluate({"mbs": 1.0})) for t in types) for types in sent] == below
    sharded = answer(8, Family(zero=3)).table.lowered.graph
    gathers = [n for r in sharded.regions for n in r.nodes if n.op == "all_gather" and n.phase is Phase.FORWARD]
    assert len(gathers) == 4 + 2


def test_members_of_a_list_that_stand_side_by_side_are_no_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(Beside(), monkeypatch)
    assert num_layers(graph) == 0
    family = Family(pp=True)
    with pytest.raises(PlanError, match="Beside is one piece, in which no layers were found that stages could share"):
        estimate(graph, SYSTEM, slipstick.make_plan(num_gpus=2, seq_len=1, family=family, pp=2))
    plan = slipstick.make_plan(num_gpus=8, seq_len=1, family=Family(zero=3))
    notes = estimate(graph, SYSTEM, plan).warnings
    assert any(note.startswith("no layers were found in Beside") for note in notes)
