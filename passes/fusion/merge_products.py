"""Products of one operand with the weights of neighbouring modules become one product with all of them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Region, Role, Value
from ...ir.meaning import In, Meaning, OperatorCall, Out
from ...ir.ops import OpClass, has
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.placement import Placement, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, symbol, total
from ...ir.sizes.shares import evened
from ..base import RegionPass
from ..names import joined_name, parent_of
from ..routers import routers


@dataclass(frozen=True, slots=True)
class MergeProducts(RegionPass[Sequence[Node]]):
    """Multiply by q, k and v at once, by gate and up at once, by both projections into latents at once.

    A rank has its part of each weight, whatever they are split by: heads of keys that several ranks hold a copy of,
    too. Results are views of the one product. Routers stay apart. Source: `QKVParallelLinear` and
    `MergedColumnParallelLinear` of vLLM and SGLang, `fused_qkv_a_proj` there and `fused_a` in TensorRT-LLM for latent
    attention, `attention.qkv` and `fused_gate_up_proj` of TensorRT-LLM.
    """

    name: ClassVar[str] = "merge_products"
    sharded: ClassVar[bool | None] = True  # weights are those of a rank

    def matches(self, region: Region) -> Iterable[Sequence[Node]]:
        """Yield products of one operand by weights of modules that stand side by side, which nothing else reads."""
        apart = routers(region)
        found: dict[tuple[object, ...], list[Node]] = {}
        for node in region.nodes:
            if has(node, OpClass.MATMUL) and node.key not in apart and _mergeable(region, node):
                weight, place = region.by_id[node.inputs[1]].type, (parent_of(node.scope), node.phase)
                key = (node.inputs[0], node.attrs, len(node.inputs), weight.dtype, *place)
                found.setdefault(key, []).append(node)
        return (group for group in found.values() if len(group) > 1)

    def rewrite(self, region: RegionRewriter, match: Sequence[Node]) -> None:
        """Put one product in the place of the first, and views of it."""
        first, *others = match
        assert isinstance(first.attrs, MatmulAttrs)
        _, right, out = first.attrs.letters
        column, last, scope = right.index(out[-1]), len(out) - 1, joined_name([n.scope for n in match])
        places = ((1, column), *((k, 0) for k in range(2, len(first.inputs))))
        operands = [region.add(_beside([region.values[n.inputs[k]] for n in match], dim)) for k, dim in places]
        results = [region.values[n.key] for n in match]
        whole = region.add(replace(_beside(results, last), name=""))
        product = replace(first, inputs=(first.inputs[0], *operands), outputs=(whole,), scope=scope)
        for node in others:
            region.erase(node)
        region.replace(first, product, *_slices(results, whole, last, scope))
        for v in results:
            region.move_storage(v.id, whole)


def _mergeable(region: Region, node: Node) -> bool:
    """Whether all operands but the first are parameters of this product alone, and its columns are its last dim."""
    own = all(region.by_id[i].role is Role.PARAM and len(region.users[i]) == 1 for i in node.inputs[1:])
    if not own or not isinstance(node.attrs, MatmulAttrs):
        return False
    left, right, out = node.attrs.letters
    return out[-1] in right and out[-1] not in left and set(right) <= {*left, out[-1]}


def _slices(results: Sequence[Value], whole: int, dim: int, scope: str) -> Iterator[Node]:
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
