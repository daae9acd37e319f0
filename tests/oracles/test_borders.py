"""Modules whose layers read far back or share weights, on simulated stages: equal to the module itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from slipstick.frontend.fold.blocks import Identity
from slipstick.frontend.fold.trace import trace
from slipstick.frontend.runs.factories import run_from_factory
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family
from slipstick.ir.plan.layout.stages import BOUNDARY
from slipstick.ir.types import DType
from slipstick.passes.families import pipeline_for
from slipstick.verify.numeric.compare import ComparedModule, ModuleResults, compare, in_double
from slipstick.verify.proof.stages import exchange_faults

pytestmark = pytest.mark.oracle

STACKS = Path(__file__).parent.parent / "data" / "stacks.py"


class Stacked(ComparedModule):
    """A module of ids to logits."""

    def answer(self, inputs: Mapping[str, Tensor]) -> ModuleResults:
        with in_double():
            self.module.zero_grad(set_to_none=True)
            logits = self.module(inputs["input_ids"])
            loss = F.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())
            torch.autograd.backward(loss)
        grads = {n: p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        return ModuleResults(loss.detach(), logits.detach(), grads)


def subject(name: str) -> Stacked:
    """The module with seeded weights, and its graph."""
    identity = Identity(name, Workload.TRAIN, DType.BF16)
    graph = trace(run_from_factory(f"{STACKS}:{name}", DType.BF16).module, identity, is_transformers=False)
    module: nn.Module = run_from_factory(f"{STACKS}:{name}", DType.FP32).module.to_empty(device="cpu").double()
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=made, dtype=torch.float64) * 0.15)
    return Stacked(name, module, graph, 80)


def lowered(of: ComparedModule) -> Graph:
    graph, _ = pipeline_for(Family(pp=True)).run(of.graph)
    return graph


@pytest.mark.parametrize("name", ["UNet", "Towers", "OneLayer", "Tied"])
def test_stages_compute_what_the_module_computes(name: str) -> None:
    of = subject(name)
    graph, answer = lowered(of), of.answer(of.inputs(2, 8))
    assert list(exchange_faults(graph)) == []
    for pp in (2, 3, 5):
        found = compare(of, graph, {"pp": pp}, 2, 8, answer)
        assert found.equal, (pp, found)


def test_a_border_that_forgets_a_skip_is_found() -> None:
    """Behind the second layer of three stages there are two values; the first of them is not sent."""
    of = subject("UNet")
    graph = lowered(of)
    names = next(run.regions for run in graph.schedule if run.regions[0] == BOUNDARY)
    region = graph.region(names[4])
    first = region.nodes[0]
    keys = {first.key, *(n.key for n in region.nodes if first.key in n.inputs)}
    cut = type(region)(region.name, region.values, tuple(n for n in region.nodes if n.key not in keys))
    wrong = graph.with_regions(tuple(cut if r is region else r for r in graph.regions))
    assert [f.region for f in exchange_faults(wrong)] == [region.name] * names.count(region.name)
    found = compare(of, wrong, {"pp": 3}, 2, 8)
    assert "is not sent" in found.broken
