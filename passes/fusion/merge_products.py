"""Products of one operand with the weights of neighbouring modules become one product with all of them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import accumulate
from typing import ClassVar

from ...ir.graph import Graph, Node, Region, Role, Value
from ...ir.meaning import In, Meaning, OperatorCall, Out
from ...ir.ops import OpClass, has
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.placement import Placement, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, symbol, total
from ...ir.sizes.shares import evened
from ..base import Pass, PassResult, require_sharded, rewritten
from ..names import joined_name, parent_of
from ..routers import routers


@dataclass(frozen=True, slots=True)
class MergeProducts(Pass):
    """Multiply by q, k and v at once, by gate and up at once, by both projections into latents at once.

    A rank has its part of each weight, whatever they are split by: heads of keys that several ranks hold a copy of,
    too. Results are views of the one product. Routers stay apart. Source: `QKVParallelLinear` and
    `MergedColumnParallelLinear` of vLLM and SGLang, `fused_qkv_a_proj` there and `fused_a` in TensorRT-LLM for latent
    attention, `attention.qkv` and `fused_gate_up_proj` of TensorRT-LLM.
    """

    name: ClassVar[str] = "merge_products"

    def requires(self, graph: Graph) -> None:
        """Weights are those of a rank."""
        require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that have such products."""
        return rewritten(graph, _rewrite)


@dataclass
class _Merged:
    """A region under reconstruction: new values by id, and the nodes that stand in the place of products."""

    region: Region
    values: dict[int, Value] = field(default_factory=dict)
    instead: dict[int, tuple[Node, ...]] = field(default_factory=dict)
    next_id: int = 0

    def add(self, v: Value) -> int:
        made = replace(v, id=self.next_id, storage=self.next_id)
        self.values[made.id] = made
        self.next_id += 1
        return made.id


def _rewrite(region: Region) -> Region:
    groups = [g for g in _groups(region) if len(g) > 1]
    if not groups:
        return region
    made = _Merged(region, {v.id: v for v in region.values}, next_id=region.fresh_id)
    for group in groups:
        _merge(made, group)
    nodes = tuple(new for n in region.nodes for new in made.instead.get(n.key, (n,)))
    read = {i for n in nodes for i in n.inputs}
    dropped = {i for g in groups for n in g for i in n.inputs[1:]} - read
    return replace(region, values=tuple(v for v in made.values.values() if v.id not in dropped), nodes=nodes)


def _groups(region: Region) -> Iterable[list[Node]]:
    """Products of the same operand by weights of modules that stand side by side, which nothing else reads."""
    apart = routers(region)
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in region.nodes:
        if has(node, OpClass.MATMUL) and node.key not in apart and _mergeable(region, node):
            weight = region.by_id[node.inputs[1]].type
            attrs, num_biases = node.attrs, len(node.inputs)
            key = (node.inputs[0], attrs, num_biases, weight.dtype, parent_of(node.scope), node.phase)
            found.setdefault(key, []).append(node)
    return found.values()


def _mergeable(region: Region, node: Node) -> bool:
    """Whether all operands but the first are parameters of this product alone, and its columns are its last dim."""
    own = all(region.by_id[i].role is Role.PARAM and len(region.users[i]) == 1 for i in node.inputs[1:])
    if not own or not isinstance(node.attrs, MatmulAttrs):
        return False
    left, right, out = node.attrs.letters
    return out[-1] in right and out[-1] not in left and set(right) <= {*left, out[-1]}


def _merge(made: _Merged, group: Sequence[Node]) -> None:
    first = group[0]
    assert isinstance(first.attrs, MatmulAttrs)
    _, right, out = first.attrs.letters
    column, last = right.index(out[-1]), len(out) - 1
    scope = joined_name([n.scope for n in group])
    weights = [made.region.by_id[n.inputs[1]] for n in group]
    biases = [made.region.by_id[i] for n in group for i in n.inputs[2:]]
    operands = [made.add(_beside(weights, column)), *([made.add(_beside(biases, 0))] if biases else [])]
    results = [made.region.by_id[n.key] for n in group]
    whole = made.add(replace(_beside(results, last), name=""))
    node = replace(first, inputs=(first.inputs[0], *operands), outputs=(whole,), scope=scope)
    made.instead[first.key] = (node, *_slices(made, results, whole, last, scope))
    made.instead |= {n.key: () for n in group[1:]}
    viewed = {v.id for v in results}
    for v in made.region.values:
        if v.storage in viewed:
            made.values[v.id] = replace(made.values[v.id], storage=whole)


def _slices(made: _Merged, results: Sequence[Value], whole: int, dim: int, scope: str) -> Iterator[Node]:
    """Views of a rank's parts of the results; what they mean is where each begins in the product of all ranks."""
    starts = accumulate((as_expr(v.type.dims[dim]) for v in results), initial=as_expr(0))
    firsts = accumulate((_all_ranks(v, dim) for v in results), initial=as_expr(0))
    for v, start, first in zip(results, starts, firsts, strict=False):
        at: Dim = as_dim(start)
        begins = OperatorCall("aten.slice.Tensor", (("self", In(0)), ("dim", dim), ("start", as_dim(first))))
        yield Node("slice", (whole,), (v.id,), SliceAttrs(dim, at), scope, meaning=Meaning((begins,), (Out(0),)))


def _all_ranks(v: Value, dim: int) -> Expr:
    """The size of a dim of all ranks together."""
    size = as_expr(evened(v.type.dims[dim]))
    for axis, placement in v.placements:
        size = size * symbol(axis) if isinstance(placement, Shard) and placement.dim == dim else size
    return size


def _beside(parts: Sequence[Value], dim: int) -> Value:
    """One tensor for several that stand side by side along a dim."""
    first = parts[0]
    dims = list(first.type.dims)
    dims[dim] = as_dim(total(v.type.dims[dim] for v in parts))
    names = [v.name for v in parts]
    placements = tuple((axis, _packed([dict(v.placements)[axis] for v in parts], dim)) for axis, _ in first.placements)
    return replace(first, type=first.type.with_dims(tuple(dims)), name=joined_name(names), placements=placements)


def _packed(given: Sequence[Placement], dim: int) -> Placement:
    """Where any part is split along the dim, the whole is parts side by side, each split by itself."""
    split = any(isinstance(p, Shard) and p.dim == dim for p in given)
    return Shard(dim, packed=True) if split else given[0]
