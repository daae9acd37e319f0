"""What collectives do to placements, and slices and renames that stand in the place of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...ir.graph import Node, Region, Value
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from ...ir.placement import REPLICATE, MeshAxis, Partial, Placement, Replicate, Shard
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, symbol, total
from ...ir.sizes.rounding import share
from ...ir.sizes.shares import evened, without_lone

# What a collective takes and makes along its axes; a shard is one of the dim that the collective names.
_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "all_reduce": ("P", "R"),
        "all_gather": ("S", "R"),
        "ring_gather": ("S", "R"),
        "reduce_scatter": ("P", "S"),
        "ring_scatter": ("P", "S"),
        "broadcast": ("R", "R"),
        "send": ("", ""),
        "recv": ("", ""),
    }
)


def is_collective(node: Node) -> bool:
    """Whether a node is a message between ranks."""
    return isinstance(node.attrs, CollectiveAttrs)


def complaints(region: Region, node: Node) -> Iterator[str]:
    """Yield, for each tensor and axis of a collective, in what it does not turn one placement into the other."""
    assert isinstance(node.attrs, CollectiveAttrs)
    if len(node.inputs) != len(node.outputs):
        yield f"has {len(node.inputs)} inputs and {len(node.outputs)} results"
        return
    for i, o in zip(node.inputs, node.outputs, strict=True):
        given, made = region.by_id[i], region.by_id[o]
        for axis, have in given.placements:
            want = made.placement(axis)
            if want is None or not _converts(node, node.attrs, axis, have, want):
                yield f"over {axis} it takes {have} and is said to make {want}"


def _converts(node: Node, attrs: CollectiveAttrs, axis: MeshAxis, have: Placement, want: Placement) -> bool:
    if axis not in attrs.axes:
        return have == want
    if has(node, Trait.EXCHANGES):
        moved = isinstance(have, Shard) and isinstance(want, Shard)
        return moved and have != want and isinstance(want, Shard) and want.dim == attrs.dim
    before, after = _KINDS[node.op]
    return _is(have, before, attrs.dim) and _is(want, after, attrs.dim)


def _is(placement: Placement, kind: str, dim: int) -> bool:
    if kind == "S":
        return isinstance(placement, Shard) and placement.dim == dim and not placement.routed
    return isinstance(placement, Partial if kind == "P" else Replicate)


def is_shard_taken(region: Region, node: Node) -> bool:
    """Whether a slice is no slice of the model but each rank's shard of what it has whole."""
    return isinstance(node.attrs, SliceAttrs) and has(node, Trait.TAKES_RANGE) and bool(_taken(region, node))


def _taken(region: Region, node: Node) -> list[MeshAxis]:
    """Axes over which a slice makes a shard of something whole."""
    given, made = region.by_id[node.inputs[0]], region.by_id[node.key]
    return [a for a, p in given.placements if isinstance(p, Replicate) and isinstance(made.placement(a), Shard)]


def shard_complaints(region: Region, node: Node) -> Iterator[str]:
    """Yield what is wrong with a slice that takes a shard: its dim, its size or another axis."""
    assert isinstance(node.attrs, SliceAttrs)
    given, made = region.by_id[node.inputs[0]], region.by_id[node.key]
    axes = _taken(region, node)
    for axis, have in given.placements:
        want = made.placement(axis)
        fits = want == have or (axis in axes and isinstance(want, Shard) and want.dim == node.attrs.dim)
        if not fits or node.attrs.drop:
            yield f"over {axis} it takes {have} and is said to make {want}, along dim {node.attrs.dim}"
    if node.attrs.start != 0:
        yield f"a rank's shard is its own, not one from {node.attrs.start} on"
    want_dim = localised(given.type.dims[node.attrs.dim], axes)
    if evened(made.type.dims[node.attrs.dim]) != want_dim:
        yield f"a shard of {given.type} over {'+'.join(axes)} has {want_dim} entries along dim {node.attrs.dim}"


def copies_complaints(region: Region, node: Node) -> Iterator[str]:
    """Yield where a tensor in a packed dim is said to be whole on every rank, and the rank's part does not hold it.

    A rank's part of the packed dim is n/axis entries and, behind them, those that every rank holds a copy of: c times
    the share of a single thing. What is whole must lie among the last c.
    """
    for axis, dim, packed, ranges in _whole_in_packed(region, node):
        held = as_expr(region.by_id[packed].type.dims[dim])
        alone = share(1, axis)
        first = as_expr(held.substitute(dict.fromkeys(alone.factors, 0)))
        copies = as_dim((held - first) / alone)
        for start, size in ranges:
            offset = without_lone(as_dim(start - first))
            sizes = [n for n in (offset, size, copies) if isinstance(n, int)]
            if len(sizes) < 3 or not 0 <= sizes[0] <= sizes[2] - sizes[1]:
                yield f"over {axis} entries {start} and {size} on of {held} are not on every rank"


def _whole_in_packed(region: Region, node: Node) -> Iterator[tuple[str, int, int, list[tuple[Expr, Dim]]]]:
    """Axis, dim and packed value of a slice, pad or concat, with start and size of what is no shard on that axis."""
    attrs = node.attrs
    if not isinstance(attrs, SliceAttrs | ConcatAttrs):
        return
    packed = node.inputs[0] if has(node, Trait.TAKES_RANGE) else node.key
    parts = [node.key] if has(node, Trait.TAKES_RANGE) else list(node.inputs)
    sizes = [region.by_id[p].type.dims[attrs.dim] for p in parts if attrs.dim < region.by_id[p].type.rank]
    first = as_expr(attrs.start if isinstance(attrs, SliceAttrs) else 0)
    for axis, lies in region.by_id[packed].placements:
        if isinstance(lies, Shard) and lies.packed and lies.dim == attrs.dim:
            starts = [first + total(sizes[:k]) for k in range(len(parts))]
            found = [not isinstance(region.by_id[p].placement(axis), Shard) for p in parts]
            yield axis, attrs.dim, packed, [(s, n) for s, n, f in zip(starts, sizes, found, strict=True) if f]


def localised(dim: Dim, axes: Sequence[MeshAxis]) -> Dim:
    """Return the even share of a dim over axes."""
    found = as_expr(evened(dim))
    for axis in axes:
        found = found / symbol(axis)
    return as_dim(found)


def is_summand(region: Region, node: Node) -> bool:
    """Whether an `identity` lets one rank's copy of something whole stand for a sum."""
    return has(node, Trait.RENAMES) and any(
        p != region.by_id[node.key].placement(a) for a, p in region.by_id[node.inputs[0]].placements
    )


def summand_complaints(region: Region, node: Node) -> Iterator[str]:
    """Yield axes over which something else than that happens."""
    for axis, have in region.by_id[node.inputs[0]].placements:
        want = region.by_id[node.key].placement(axis)
        if have != want and not (have == REPLICATE and isinstance(want, Partial)):
            yield f"over {axis} it takes {have} and is said to make {want}"


def global_dims(v: Value) -> tuple[Dim, ...]:
    """Return the dims of the tensor of which a rank has a part, shares that differ between ranks as quotients."""
    dims = [as_expr(evened(d)) for d in v.type.dims]
    for axis, p in v.placements:
        if isinstance(p, Shard):
            dims[p.dim] = dims[p.dim] * symbol(axis)
    return tuple(as_dim(d) for d in dims)
