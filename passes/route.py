"""Expert banks taken apart into dispatch, products and combine, so that rows can travel to other ranks in between."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ..ir.editing.rewriter import RegionRewriter
from ..ir.graph import Graph, Node, Region, Role, Value
from ..ir.ops import Trait, has
from ..ir.ops.fused.routing import RoutedAttrs
from ..ir.plan import CAPACITY
from ..ir.records import dataclass
from ..ir.sizes.expr import as_dim, as_expr, symbol
from .base import Pass, PassResult, rewritten


@dataclass(frozen=True, slots=True)
class Route(Pass):
    """Replace every `experts` by `dispatch`, `expert_bank`, `combine`, and their backward likewise.

    | option   | meaning                                                                                        |
    |-----------|-----------------------------------------------------------------------------------------------|
    | capacity | each expert takes a fixed number of rows: capacity factor (the symbol `cf`) x their mean number |
    | redundant | copies of experts in each bank, which share the rows of the experts                           |
    """

    name: ClassVar[str] = "route"
    sharded: ClassVar[bool | None] = False  # rows get their placements from `shard`
    capacity: bool = False
    redundant: int = 0

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that hold expert banks."""
        return rewritten(graph, lambda r: _with_copies(_rewrite(r, self.capacity), self.redundant))


def _rewrite(region: Region, capacity: bool) -> Region:
    if not any(has(n, Trait.ROUTES) for n in region.nodes):
        return region
    region = _with_capacity(region) if capacity else region
    at = RegionRewriter(region)
    for node in (n for n in region.nodes if has(n, Trait.ROUTES)):
        is_forward = has(node, Trait.ROUTES, backward=False)
        at.replace(node, *(_forward(node, RoutedAttrs(capacity)) if is_forward else _backward(at, node)))
    return at.finish()


def _with_copies(region: Region, redundant: int) -> Region:
    """Banks have a place for each copy of an expert: matrices and biases get longer."""
    held = {i for n in region.nodes if has(n, Trait.HOLDS_EXPERTS) for i in n.inputs} if redundant else set()
    longer = {i: region.by_id[i] for i in held if region.by_id[i].role is Role.PARAM}
    if not longer:
        return region
    for i, v in longer.items():
        first, *rest = v.type.dims
        longer[i] = replace(v, type=v.type.with_dims((as_dim(as_expr(first) + redundant), *rest)))
    return replace(region, values=tuple(longer.get(v.id, v) for v in region.values))


def _with_capacity(region: Region) -> Region:
    """Every row of an expert's room is computed and sent, whether a token fills it or not."""
    rows = {o for n in region.nodes if has(n, Trait.ROUTES, backward=False) for o in n.outputs[1:]}
    return replace(region, values=tuple(_scaled(v) if v.id in rows else v for v in region.values))


def _scaled(v: Value) -> Value:
    first, *rest = v.type.dims
    return replace(v, type=v.type.with_dims((as_dim(as_expr(first) * symbol(CAPACITY)), *rest)))


def _forward(node: Node, attrs: RoutedAttrs) -> list[Node]:
    x, idx, weights, *bank = node.inputs
    out, routed, up, act, down = node.outputs
    return [
        replace(node, op="dispatch", inputs=(x, idx), outputs=(routed,), attrs=attrs),
        replace(node, op="expert_bank", inputs=(routed, *bank), outputs=(down, up, act)),
        replace(node, op="combine", inputs=(down, weights, idx), outputs=(out,), attrs=attrs),
    ]


def _backward(at: RegionRewriter, node: Node) -> list[Node]:
    grad, _, idx, weights, up, down, routed, up_out, act, down_out = node.inputs
    dx, dweights, *dbank = node.outputs
    d_down, d_routed = (at.add(Value(0, at.values[v].type, 0)) for v in (down_out, routed))
    bank = at.region.producer.get(node.forward) if node.forward is not None else None
    keys = (None, None, None) if bank is None else (bank.outputs[0], bank.outputs[4], bank.outputs[1])
    return [
        replace(node, op="combine_bwd", inputs=(grad, down_out, weights, idx), outputs=(d_down, dweights),
                attrs=RoutedAttrs(), forward=keys[0]),
        replace(node, op="expert_bank_bwd", inputs=(d_down, routed, up, down, up_out, act),
                outputs=(d_routed, *dbank), forward=keys[1]),
        replace(node, op="dispatch_bwd", inputs=(d_routed, idx), outputs=(dx,), attrs=RoutedAttrs(), forward=keys[2]),
    ]  # fmt: skip
