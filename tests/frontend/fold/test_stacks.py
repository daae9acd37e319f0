"""Whole recordings folded: several stacks of layers, and that each folded graph says what the flat one says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from slipstick.frontend.fold import trace as tracing
from slipstick.frontend.fold.blocks import Identity
from slipstick.frontend.fold.layered import fold_by_scope, whole
from slipstick.frontend.record import memo
from slipstick.frontend.runs.factories import run_from_factory
from slipstick.ir.errors import InternalError
from slipstick.ir.graph import Graph, Phase, Role, Run, Workload
from slipstick.ir.text.printer import print_graph
from slipstick.ir.types import DType
from slipstick.passes.manager import parse_pipeline

from ..sums import flops, moved_bytes, num_ops

STACKS = Path(__file__).parents[2] / "data" / "stacks.py"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Forget the file of models, so that its name is free for others."""
    yield
    sys.modules.pop("slipstick_user_stacks", None)


def built(name: str) -> nn.Module:
    return run_from_factory(f"{STACKS}:{name}", DType.FP32).module


def traced(module: nn.Module, workload: Workload = Workload.TRAIN) -> Graph:
    return tracing.trace(module, Identity("m", workload, DType.FP32), is_transformers=False)


def schedule(graph: Graph) -> str:
    return " | ".join(f"{', '.join(run.regions)} x{run.count}" for run in graph.schedule[1:-1])


# What a layer reads or hands on otherwise than its neighbours (first, last, behind a stage) makes a class of its own.
SCHEDULES = {
    "Towers": "block0 x4 | block1 x1 | block2 x3 | block3 x1",
    "UNet": "block0 x1 | block1 x1 | block2 x1 | block3 x1 | block4 x3 | block5 x1 | block6 x1 | block7 x1 | block8 x1",
    "Stages": "block0 x1 | block1 x1 | block2 x5 | block3 x1 | block4 x3",
    "OneLayer": "block0 x1 | block1 x6 | block2 x1",
    "Attributes": "block0 x6",
    "FourLists": "block0 x5",
    "EveryThird": "block0, block0, block1 x2 | block0 x2 | block2 x1",
    "Tied": "block0 x1 | block1 x4 | block2 x1",
    "Routed": "block0 x4",
}


@pytest.mark.parametrize("name", [*SCHEDULES, "Grouped", "TwoNorms"])
def test_a_folded_graph_is_the_flat_one_in_every_sum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = built(name)
    folded = traced(module)
    monkeypatch.setattr(tracing, "fold_by_scope", whole)
    monkeypatch.setattr(tracing, "in_layers", lambda graph: graph)
    flat = traced(module)
    assert name not in SCHEDULES or schedule(folded) == SCHEDULES[name]
    assert len(flat.regions) == 2
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert flops(folded, phase) == flops(flat, phase)
        assert num_ops(folded, phase) == num_ops(flat, phase)
    assert moved_bytes(folded) == moved_bytes(flat)
    assert folded.saved_bytes == flat.saved_bytes
    assert folded.num_parameters == flat.num_parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["UNet", "Stages", "OneLayer", "FourLists", "EveryThird", "Grouped"])
def test_flops_are_those_that_torch_counts(name: str) -> None:
    graph, sizes = traced(built(name)), {"batch": 2, "seq": 8}
    module = built(name).to_empty(device="cpu")
    with FlopCounterMode(display=False) as counter:
        logits = module(torch.zeros(2, 8, dtype=torch.int64))
        forward = counter.get_total_flops()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.zeros(16, dtype=torch.int64)).backward()  # type: ignore[no-untyped-call]
    assert flops(graph, Phase.FORWARD).evaluate(sizes) == forward
    assert flops(graph, Phase.BACKWARD).evaluate(sizes) == counter.get_total_flops() - forward


def test_names_have_stars_for_the_number_of_a_layer_in_every_list() -> None:
    graph = traced(built("FourLists"), Workload.PREFILL)
    names = {v.name for v in graph.region("block0").of_role(Role.PARAM)}
    assert {"norms.*.weight", "mixers.*.up.weight", "wide.*.bias", "scales.*"} <= names
    assert not any(c.isdigit() for name in names for c in name)
    scopes = {n.scope for n in graph.region("block0").nodes}
    assert scopes == {"", "norms.*", "mixers.*", "mixers.*.norm", "mixers.*.up", "mixers.*.down", "wide.*"}


def test_stages_keep_their_own_numbers_in_the_names_of_their_layers() -> None:
    graph = traced(built("Stages"), Workload.PREFILL)
    names = {v.name for r in graph.regions for v in r.of_role(Role.PARAM) if v.name.endswith("up.weight")}
    assert names == {f"stages.{k}.blocks.*.up.weight" for k in range(3)}


def test_several_stacks_are_sharded_recomputed_and_laid_on_stages() -> None:
    graph = traced(built("Stages"))
    lowered, _ = parse_pipeline('shard,recompute{policy="full"},pipeline').run(graph)
    layers = [r for r in lowered.regions if r.name.startswith("block")]
    assert all(any(n.phase is Phase.RECOMPUTE for n in r.nodes) for r in layers)
    assert lowered.region("boundary").nodes


@pytest.mark.parametrize("name", ["UNet", "Tied", "Routed"])
def test_a_remembered_call_makes_what_running_it_makes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = built(name)
    remembered = print_graph(traced(module))
    monkeypatch.setattr(memo.Memo, "run", lambda self, func, args, kwargs: func(*args, **kwargs))
    assert print_graph(traced(module)) == remembered


def test_a_fold_that_loses_a_layer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(flat: object, identity: object) -> Graph:
        graph = fold_by_scope(flat, identity)  # type: ignore[arg-type]
        runs = tuple(Run(r.regions, r.count - (r.count > 1)) for r in graph.schedule)
        return Graph(graph.name, graph.workload, graph.dtype, graph.regions, runs)

    monkeypatch.setattr(tracing, "fold_by_scope", short)
    with pytest.raises(InternalError, match="changes how often"):
        traced(built("Attributes"))
