"""Weight gradients are added to a running sum over the micro-batches of a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..ir.editing.rewriter import RegionRewriter
from ..ir.graph import Node, Phase, Region, Value, Workload
from ..ir.ops.tensors.pointwise import AccumulateAttrs
from ..ir.records import dataclass
from ..ir.types import DType, TensorType
from .base import RegionPass


@dataclass(frozen=True, slots=True)
class Accumulate(RegionPass[tuple[int, int]]):
    """Add an `accumulate` node right behind every weight gradient, which lives no longer than that.

    | option | meaning                                                           |
    |--------|-------------------------------------------------------------------|
    | dtype  | element type of the running sum, which is also what is reduced    |
    """

    name: ClassVar[str] = "accumulate"
    dtype: str = "fp32"

    sharded: ClassVar[bool | None] = False  # sums are sharded with the gradients
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)

    def matches(self, region: Region) -> Iterable[tuple[int, int]]:
        """Yield parameters with their gradients."""
        return region.grads

    def rewrite(self, region: RegionRewriter, match: tuple[int, int]) -> None:
        """Add a gradient to its sum."""
        grad, kind = match[1], DType.parse(self.dtype)
        source = region.region.producer[grad]
        made = region.add(Value(0, TensorType(region.values[grad].type.dims, kind), 0))
        sums = Node("accumulate", (grad,), (made,), AccumulateAttrs(), scope=source.scope, phase=Phase.BACKWARD)
        region.insert_after(source, sums)
        region.grads = tuple((p, made if (p, g) == match else g) for p, g in region.grads)
