"""Context parallelism of a decode step: each rank holds a part of the cached tokens, and sums meet behind attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import chain
from typing import ClassVar

from ...ir.errors import NotBuiltError, PlanError
from ...ir.graph import Attrs, Constraint, Graph, Node, Region, Role, Value
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.fused.index_keys import IndexAttrs
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.placement import CP, PARTIAL, TP, AxisGroup, Partial, Placement, Shard, group_axes
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr, as_dim, as_expr, symbol
from ...ir.sizes.shares import read_share
from ..base import Pass, PassResult

_CACHED = "kv"
_BOTH = (TP, CP)


@dataclass(frozen=True, slots=True)
class SpreadCache(Pass):
    """Spread cached tokens over `cp` in decode, and what does not attend over `tp` and `cp` together.

    Every rank of cp makes the queries of its share of heads and attends with all of them over its own tokens. What it
    finds is a part of a sum, weighted by its log-sum-exp; ranks exchange parts for heads, and all layers behind are
    split over tp x cp (Helix parallelism, arXiv 2507.07120, section 2; vLLM's decode context parallelism).
    """

    name: ClassVar[str] = "spread_cache"
    sharded: ClassVar[bool | None] = True  # values are those of a rank

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite every region; NotBuiltError for models whose attention does not read all tokens of its cache."""
        if any(isinstance(n.attrs, IndexAttrs) for r in graph.regions for n in r.nodes):
            raise NotBuiltError("--cp in decode with an indexer, which ranks keys of all ranks: not modelled; use --tp")
        spread = [_Spread(region) for region in graph.regions]
        regions = tuple(one.run() for one in spread)
        found = {(str(c.dim), c.axis): c for one in spread for c in one.constraints()}
        # A cache need not be even: the rank that gets the new token has most.
        kept = (*(c for c in graph.constraints if c.axes != (CP,)), *found.values())
        return PassResult(replace(graph, regions=regions, constraints=kept), changed=True)


class _Spread:
    """One region: nodes up to attention stay as they are on each rank of cp, what is behind is split further."""

    def __init__(self, region: Region) -> None:
        self.old = region
        attends = [n for n in region.nodes if has(n, Trait.ATTENDS)]
        self.attends = {o for n in attends for o in n.outputs}
        self.early = {n.key for n in attends}
        todo = list(attends)
        while todo:
            for i in todo.pop().inputs:
                made = region.producer.get(i)
                if made is not None and made.key not in self.early:
                    self.early.add(made.key)
                    todo.append(made)
        self.values: dict[int, Value] = {}
        self.nodes: list[Node] = []
        self.split: dict[int, int] = {}

    def run(self) -> Region:
        """Return the region."""
        for v in self.old.values:
            self.values[v.id] = self._kept(v) if self._is_early(v) else self._further(v)
        for node in self.old.nodes:
            if node.key in self.early:
                self.nodes.append(node)
            else:
                inputs = tuple(self._crossed(i, node) for i in node.inputs)
                self.nodes.append(replace(node, inputs=inputs, attrs=_attrs(node.attrs)))
        return replace(self.old, values=tuple(self.values.values()), nodes=tuple(self.nodes))

    def constraints(self) -> Iterator[Constraint]:
        """Yield what tp and cp must divide together."""
        for v in self.old.of_role(Role.PARAM):
            lies = v.placement(TP)
            if isinstance(lies, Shard) and not self._is_early(v):
                yield _divided(v, lies.dim, f"dim {lies.dim} of {v.type}, '{v.name}'")
        for node in self.old.nodes:
            if has(node, Trait.ATTENDS):
                yield _divided(self.old.by_id[node.inputs[0]], 1, "query heads")

    def _is_early(self, v: Value) -> bool:
        made = self.old.producer.get(v.id)
        if made is not None:
            return made.key in self.early
        return any(n.key in self.early for n in self.old.users.get(v.id, ()))

    def _kept(self, v: Value) -> Value:
        """On each rank of cp a part of the cached tokens, and of the result of attention a summand."""
        along = next((i for i, d in enumerate(v.type.dims) if _CACHED in as_expr(d).symbols), None)
        if along is not None:
            part = v.type.substitute({_CACHED: symbol(_CACHED) / symbol(CP)})
            return _lying(replace(v, type=part), Shard(along))
        return _lying(v, PARTIAL) if v.id in self.attends else v

    def _further(self, v: Value) -> Value:
        if any(_CACHED in as_expr(d).symbols for d in v.type.dims):
            raise NotBuiltError(
                f"--cp in decode: {v.type} in {self.old.name} has cached tokens outside of attention: not modelled"
            )
        shares = sorted(f for d in v.type.dims for f in as_expr(d).factors if read_share(f))
        if shares:
            raise PlanError(
                f"--cp in decode: '{v.name or v.type}' is cut unevenly over tp ({shares[0]}); use --tp alone"
            )
        lies = v.placement(TP)
        made = replace(v, type=v.type.substitute({TP: symbol(TP) * symbol(CP)}))
        return _lying(made, lies) if isinstance(lies, (Shard, Partial)) else made

    def _crossed(self, value: int, user: Node) -> int:
        """What a layer behind attention reads of what is before: its part of it, or of the sum over all ranks."""
        v = self.old.by_id[value]
        lies = v.placement(TP)
        if not self._is_early(v) or not isinstance(lies, Shard):
            return value
        if value not in self.split:
            ident = max(self.values) + 1
            made = _lying(replace(self._further(replace(v, placements=v.placements)), id=ident, role=Role.RESULT), lies)
            if value in self.attends:
                why = f"parts of {self.old.name}'s attention over cached tokens"
                made = replace(made, storage=ident, name="")
                node = Node("reduce_scatter", (value,), (ident,), CollectiveAttrs(CP.group, lies.dim, why), user.scope)
            else:
                made = replace(made, storage=v.storage, name="")
                node = Node("slice", (value,), (ident,), SliceAttrs(lies.dim, 0), user.scope)
            self.values[ident] = made
            self.nodes.append(replace(node, phase=user.phase))
            self.split[value] = ident
        return self.split[value]


def _divided(v: Value, dim: int, where: str) -> Constraint:
    return Constraint(as_dim(as_expr(v.type.dims[dim]) * symbol(TP)), group_axes(_BOTH), where)


def _lying(v: Value, over_cp: Placement) -> Value:
    return replace(v, placements=tuple((axis, over_cp if axis == CP else p) for axis, p in v.placements))


def _attrs(attrs: Attrs) -> Attrs:
    """What names tp names both axes, and sizes are those of a rank of both."""
    changed: dict[str, object] = {}
    for field in fields(attrs):
        value = getattr(attrs, field.name)
        if isinstance(value, AxisGroup) and TP in value.axes:
            axes = (_BOTH if axis == TP else (axis,) for axis in value.axes)
            changed[field.name] = group_axes(tuple(chain.from_iterable(axes)))
        elif isinstance(value, Expr) and TP in value.symbols:
            changed[field.name] = as_dim(value.substitute({TP: symbol(TP) * symbol(CP)}))
    return replace(attrs, **changed)
