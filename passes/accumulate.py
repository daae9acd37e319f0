"""Weight gradients are added to a running sum over the micro-batches of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ..ir.graph import Graph, Node, Phase, Region, Value, Workload
from ..ir.ops.tensors.pointwise import AccumulateAttrs
from ..ir.records import dataclass
from ..ir.types import DType, TensorType
from .base import Pass, PassResult, require_sharded


@dataclass(frozen=True, slots=True)
class Accumulate(Pass):
    """Add an `accumulate` node right behind every weight gradient, which lives no longer than that.

    | option | meaning                                                           |
    |--------|-------------------------------------------------------------------|
    | dtype  | element type of the running sum, which is also what is reduced    |
    """

    name: ClassVar[str] = "accumulate"
    dtype: str = "fp32"

    def requires(self, graph: Graph) -> None:
        """Sums are sharded with the gradients."""
        require_sharded(self.name, graph, sharded=False)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite every region that has gradients; inference graphs stay as they are."""
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        kind = DType.parse(self.dtype)
        return PassResult(graph.with_regions(tuple(_rewrite(r, kind) for r in graph.regions)), changed=True)


def _rewrite(region: Region, kind: DType) -> Region:
    values = list(region.values)
    added: dict[int, list[Node]] = {}
    grads: list[tuple[int, int]] = []
    fresh = max((v.id for v in values), default=-1) + 1
    for param, grad in region.grads:
        source, made = region.producer[grad], fresh + len(grads)
        values.append(Value(made, TensorType(region.by_id[grad].type.dims, kind), made))
        addition = Node("accumulate", (grad,), (made,), AccumulateAttrs(), scope=source.scope, phase=Phase.BACKWARD)
        added.setdefault(source.key, []).append(addition)
        grads.append((param, made))
    nodes = tuple(n for node in region.nodes for n in (node, *added.get(node.key, ())))
    return replace(region, values=tuple(values), nodes=nodes, grads=tuple(grads))
