"""What a step makes of gradients: sums over its micro-batches, then one update a region, on the shards of a rank."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from ..ir.errors import PlanError
from ..ir.graph import NO_ATTRS, Attrs, Graph, Node, Phase, Region, Value, Workload
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.ops.optimizer import OptimizerAttrs
from ..ir.ops.tensors.layout import SliceAttrs
from ..ir.ops.tensors.pointwise import AccumulateAttrs
from ..ir.placement import AXES, AxisGroup, MeshAxis, Placement, Replicate, Shard, group_axes
from ..ir.plan.optimizer_states import check_states
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
        return PassResult(graph.with_regions(tuple(_with_sums(r, kind) for r in graph.regions)), changed=True)


def _with_sums(region: Region, kind: DType) -> Region:
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
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        kept = OptimizerAttrs(self.main, self.exp_avg, self.exp_avg_sq)
        return PassResult(graph.with_regions(tuple(_with_step(r, kept) for r in graph.regions)), changed=True)


@dataclass
class _Tail:
    """Values and nodes appended to a region."""

    region: Region
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def value(
        self, like: Value, kind: TensorType, owner: int | None, placements: tuple[tuple[MeshAxis, Placement], ...]
    ) -> int:
        ident = self.region.fresh_id + len(self.values)
        self.values.append(Value(ident, kind, ident if owner is None else owner, placements=placements))
        return ident

    def node(self, op: str, inputs: tuple[int, ...], outputs: tuple[int, ...], attrs: Attrs = NO_ATTRS) -> None:
        self.nodes.append(Node(op, inputs, outputs, attrs, phase=Phase.OPTIMIZER))


def _with_step(region: Region, kept: OptimizerAttrs) -> Region:
    if not region.grads:
        return region
    tail = _Tail(region)
    sharded = [_cut_axes(region, p, g) for p, g in region.grads]
    params = tuple(_shard(tail, p, g) if cut else p for (p, g), cut in zip(region.grads, sharded, strict=True))
    made = {v.id: v for v in (*region.values, *tail.values)}
    updated = tuple(tail.value(made[p], made[p].type, made[p].storage, made[p].placements) for p in params)
    tail.node("optimizer_step", (*params, *(g for _, g in region.grads)), updated, kept)
    for axes in dict.fromkeys(cut for cut in sharded if cut):
        pairs = [(u, p) for u, (p, _), cut in zip(updated, region.grads, sharded, strict=True) if cut == axes]
        # Every rank gets the parameters that the others have updated.
        whole = [tail.region.by_id[p] for _, p in pairs]
        outs = tuple(tail.value(p, p.type, p.storage, p.placements) for p in whole)
        why = f"{len(pairs)} updated parameters gathered together over {axes}"
        tail.node("all_gather", tuple(u for u, _ in pairs), outs, CollectiveAttrs(axes, 0, why))
    return replace(region, values=(*region.values, *tail.values), nodes=(*region.nodes, *tail.nodes))


def _cut_axes(region: Region, param: int, grad: int) -> AxisGroup:
    """The axes over which a parameter is the same on all ranks and its gradient is in shards."""
    whole, cut = dict(region.by_id[param].placements), dict(region.by_id[grad].placements)
    return group_axes(tuple(a for a in AXES if isinstance(whole.get(a), Replicate) and isinstance(cut.get(a), Shard)))


def _shard(tail: _Tail, param: int, grad: int) -> int:
    """The part of a parameter that this rank updates: the rows whose gradient it holds."""
    p, g = tail.region.by_id[param], tail.region.by_id[grad]
    made = tail.value(p, p.type.with_dims(g.type.dims), p.storage, g.placements)
    tail.node("slice", (param,), (made,), SliceAttrs(0, 0))
    return made
