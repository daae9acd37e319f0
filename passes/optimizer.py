"""One fused optimizer step a region, over the parameters it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.graph import Graph, Node, Phase, Region, Value, Workload
from .base import Pass, PassResult


@dataclass(frozen=True, slots=True)
class Optimizer(Pass):
    """Add the update: mixed-precision Adam with fp32 master weights and two fp32 moments."""

    name: ClassVar[str] = "optimizer"

    def apply(self, graph: Graph) -> PassResult:
        """Append an `optimizer_step` to every region with gradients."""
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        return PassResult(graph.with_regions(tuple(_with_step(r) for r in graph.regions)), changed=True)


def _with_step(region: Region) -> Region:
    if not region.grads:
        return region
    params = tuple(p for p, _ in region.grads)
    fresh = max(v.id for v in region.values) + 1
    updated = [_updated(region.by_id[p], fresh + k) for k, p in enumerate(params)]
    inputs = (*params, *(g for _, g in region.grads))
    node = Node("optimizer_step", inputs, tuple(v.id for v in updated), phase=Phase.OPTIMIZER)
    return replace(region, values=(*region.values, *updated), nodes=(*region.nodes, node))


def _updated(param: Value, ident: int) -> Value:
    """The parameter after the step, in its own storage."""
    return Value(ident, param.type, param.storage, placements=param.placements)
