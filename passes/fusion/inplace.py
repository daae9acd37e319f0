"""Results written into memory that exists already: weight gradients into their sums, the loss gradient into logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ...ir.graph import Graph, Phase, Region, Role, Workload
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.tensors.pointwise import AccumulateAttrs
from ...ir.records import dataclass
from ..base import Pass, PassResult, require_sharded, rewritten

_PRODUCTS = (OpClass.MATMUL, OpClass.EXPERTS)


@dataclass(frozen=True, slots=True)
class InPlace(Pass):
    """Let results share storage with what they replace or are added to.

    Products add weight gradients straight to the running sum, so that no gradient of its own exists; the loss turns
    its fp32 logits into their gradient. Megatron-LM does both: `core/tensor_parallel/layers.py` (gradient accumulation
    fusion) and `core/tensor_parallel/cross_entropy.py`.
    """

    name: ClassVar[str] = "inplace"

    def requires(self, graph: Graph) -> None:
        """Which gradients are added without a message in between is known once the graph is sharded."""
        require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Give such results the storage of what they are written into."""
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        return rewritten(graph, _rewrite)


def _rewrite(region: Region) -> Region:
    home = dict((*_added(region), *_replaced(region)))
    if not home:
        return region
    values = tuple(replace(v, storage=home.get(v.storage, v.storage)) for v in region.values)
    nodes = tuple(
        replace(n, attrs=AccumulateAttrs(fused=True)) if has(n, Trait.ACCUMULATES) and n.inputs[0] in home else n
        for n in region.nodes
    )
    return replace(region, values=values, nodes=nodes)


def _added(region: Region) -> Iterator[tuple[int, int]]:
    """Gradients of products that are read by their sum alone."""
    for node in (n for n in region.nodes if has(n, Trait.ACCUMULATES)):
        grad = node.inputs[0]
        source = region.producer.get(grad)
        alone = len(region.users[grad]) == 1 and region.by_id[grad].storage == grad
        if source is not None and alone and has(source, *_PRODUCTS):
            yield grad, node.key


def _replaced(region: Region) -> Iterator[tuple[int, int]]:
    """Gradients of logits that nobody reads afterwards."""
    for node in (n for n in region.nodes if has(n, OpClass.LOSS, backward=True)):
        grad, logits = region.by_id[node.key], region.by_id[node.inputs[1]]
        later = [n for n in region.users[logits.id] if n.phase is not Phase.FORWARD]
        if later == [node] and logits.role is Role.RESULT and logits.type == grad.type:
            yield grad.id, logits.storage
