"""Results written into memory that exists already: weight gradients into their sums, the loss gradient into logits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Phase, Region, Role, Workload
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.tensors.pointwise import AccumulateAttrs
from ...ir.records import dataclass
from ..base import RegionPass

_PRODUCTS = (OpClass.MATMUL, OpClass.EXPERTS)


@dataclass(frozen=True, slots=True)
class InPlace(RegionPass[tuple[int, int]]):
    """Let results share storage with what they replace or are added to.

    Products add weight gradients straight to the running sum, so that no gradient of its own exists; the loss turns
    its fp32 logits into their gradient. Megatron-LM does both: `core/tensor_parallel/layers.py` (gradient accumulation
    fusion) and `core/tensor_parallel/cross_entropy.py`.
    """

    name: ClassVar[str] = "inplace"
    sharded: ClassVar[bool | None] = True  # which gradients are added without a message in between is known then
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)

    def matches(self, region: Region) -> Iterable[tuple[int, int]]:
        """Yield results, and the storage of what each is written into."""
        return (*_added(region), *_replaced(region))

    def rewrite(self, region: RegionRewriter, match: tuple[int, int]) -> None:
        """Let a result lie there; a sum that it is added to is made by its own kernel."""
        result, home = match
        region.move_storage(result, home)
        for node in (n for n in region.users(result) if has(n, Trait.ACCUMULATES)):
            region.replace(node, replace(node, attrs=AccumulateAttrs(fused=True)))


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
