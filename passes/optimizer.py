"""What a step makes of gradients: sums over its micro-batches, then one update a region, on the shards of a rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..ir.editing.rewriter import RegionRewriter
from ..ir.errors import PlanError
from ..ir.graph import Graph, Node, Phase, Region, Value, Workload
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.ops.optimizer import OptimizerAttrs
from ..ir.ops.tensors.layout import SliceAttrs
from ..ir.ops.tensors.pointwise import AccumulateAttrs
from ..ir.placement import AXES, AxisGroup, Replicate, Shard, group_axes
from ..ir.plan.optimizer_states import check_states
from ..ir.records import dataclass
from ..ir.types import DType, TensorType
from .base import Pass, PassResult, RegionPass, require_sharded


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


@dataclass(frozen=True, slots=True)
class Optimizer(Pass):
    """Add the update: mixed-precision Adam with master weights and two moments.

    Where a gradient is sharded over the data axes and its parameter is not (ZeRO stages 1 and 2), each rank updates
    its shard and the updated parameters are gathered.

    | option     | meaning                                                                       |
    |------------|-------------------------------------------------------------------------------|
    | main       | type of master weights: fp32, fp16; none: weights themselves are updated      |
    | exp_avg    | type of the first moment: fp32, bf16, fp16, fp8, int8 (a scale of 256 values) |
    | exp_avg_sq | type of the second moment, likewise                                           |
    """

    name: ClassVar[str] = "optimizer"
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)
    main: str = "fp32"
    exp_avg: str = "fp32"
    exp_avg_sq: str = "fp32"

    def requires(self, graph: Graph) -> None:
        """Which shard a rank updates comes from `shard`."""
        check_states(self.main, self.exp_avg, self.exp_avg_sq)
        if graph.workload is not Workload.TRAIN:
            return
        require_sharded(self.name, graph, sharded=True)
        if self.main != "fp32" and graph.dtype is DType.FP32:
            raise PlanError(
                f"main-params-dtype={self.main}: weights are fp32 themselves, and have no others: leave it out"
            )

    def apply(self, graph: Graph) -> PassResult:
        """Append an `optimizer_step` to every region with gradients."""
        kept = OptimizerAttrs(self.main, self.exp_avg, self.exp_avg_sq)
        return PassResult(graph.with_regions(tuple(_with_step(r, kept) for r in graph.regions)), changed=True)


def _with_step(region: Region, kept: OptimizerAttrs) -> Region:
    if not region.grads:
        return region
    at = RegionRewriter(region)
    sharded = [_cut_axes(region, p, g) for p, g in region.grads]
    params = [_shard(at, p, g) if cut else p for (p, g), cut in zip(region.grads, sharded, strict=True)]
    updated = tuple(_like(at, p) for p in params)
    grads = (g for _, g in region.grads)
    at.append(Node("optimizer_step", (*params, *grads), updated, kept, phase=Phase.OPTIMIZER))
    for axes in dict.fromkeys(cut for cut in sharded if cut):
        pairs = [(u, p) for u, (p, _), cut in zip(updated, region.grads, sharded, strict=True) if cut == axes]
        # Every rank gets the parameters that the others have updated.
        outs = tuple(_like(at, p) for _, p in pairs)
        attrs = CollectiveAttrs(axes, 0, f"{len(pairs)} updated parameters gathered together over {axes}")
        at.append(Node("all_gather", tuple(u for u, _ in pairs), outs, attrs, phase=Phase.OPTIMIZER))
    return at.finish()


def _like(at: RegionRewriter, param: int) -> int:
    """What a parameter is behind the update."""
    v = at.values[param]
    return at.add(Value(0, v.type, 0, placements=v.placements), v.storage)


def _cut_axes(region: Region, param: int, grad: int) -> AxisGroup:
    """The axes over which a parameter is the same on all ranks and its gradient is in shards."""
    whole, cut = dict(region.by_id[param].placements), dict(region.by_id[grad].placements)
    return group_axes(tuple(a for a in AXES if isinstance(whole.get(a), Replicate) and isinstance(cut.get(a), Shard)))


def _shard(at: RegionRewriter, param: int, grad: int) -> int:
    """The part of a parameter that this rank updates: the rows whose gradient it holds."""
    p, g = at.values[param], at.values[grad]
    made = at.add(Value(0, p.type.with_dims(g.type.dims), 0, placements=g.placements), p.storage)
    at.append(Node("slice", (param,), (made,), SliceAttrs(0, 0), phase=Phase.OPTIMIZER))
    return made
