"""Views (free) and the ops that move data as it lies: embedding, concat, copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from ...placement import PARTIAL, REPLICATE, Placement, Shard
from ...records import dataclass
from ...sizes.expr import Dim, as_dim, as_expr, total
from ...sizes.shares import without_lone
from ..base import (
    Attrs,
    OpCall,
    OpClass,
    OpDef,
    ShardChoice,
    Work,
    first_dims,
    free,
    makes,
    no_check,
    same_dims,
    same_numel,
    traffic,
)
from ..index_map import IndexMap, PlacementEntry, Tensor, numbered, tensor
from ..traits import Trait
from .pointwise import map_unary


@dataclass(frozen=True, slots=True)
class PermuteAttrs(Attrs):
    """`dims` name the input dim of each output dim."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttrs(Attrs):
    """`size` entries of `dim` from `start` on; `drop` removes the dim (an index instead of a range).

    `dealt` says that ranks hold the entries of a cut dim in turn, so that each has its share of every range.
    """

    dim: int
    start: Dim
    drop: bool = False
    dealt: bool = False


@dataclass(frozen=True, slots=True)
class ConcatAttrs(Attrs):
    """`dim` is the dim along which inputs stand side by side."""

    dim: int


def _check_reshape(call: OpCall) -> Iterator[str]:
    yield from same_numel(call.inputs[0], call.outputs[0], "reshape")


def _permuted(call: OpCall) -> tuple[Dim, ...]:
    return tuple(call.inputs[0].dims[d] for d in call.attrs_as(PermuteAttrs).dims)


@makes(_permuted)
def _check_permute(call: OpCall) -> Iterator[str]:
    dims = call.attrs_as(PermuteAttrs).dims
    if sorted(dims) != list(range(call.inputs[0].rank)):
        yield f"permute {dims} does not name each dim of {call.inputs[0]} once"
        return
    yield from same_dims(call.outputs[0].dims, _permuted(call), "permute")


def _check_expand(call: OpCall) -> Iterator[str]:
    a, b = call.inputs[0].dims, call.outputs[0].dims
    padded = (1,) * (len(b) - len(a)) + a
    if len(a) > len(b) or any(x not in (1, y) for x, y in zip(padded, b, strict=True)):
        yield f"{call.inputs[0]} does not expand to {call.outputs[0]}"


def _check_slice(call: OpCall) -> Iterator[str]:
    attrs = call.attrs_as(SliceAttrs)
    if not 0 <= attrs.dim < call.inputs[0].rank:
        yield f"dim {attrs.dim} is not a dim of {call.inputs[0]}"
        return
    given = tuple(d for i, d in enumerate(call.inputs[0].dims) if i != attrs.dim)
    out = call.outputs[0].dims
    rest = out if attrs.drop else tuple(d for i, d in enumerate(out) if i != attrs.dim)
    yield from same_dims(rest, given, f"slice of dim {attrs.dim}")
    if attrs.drop and not as_expr(attrs.start).is_integral:
        yield f"index {attrs.start} of dim {attrs.dim} is no whole number on every rank"


def _check_pad(call: OpCall) -> Iterator[str]:
    swapped = OpCall(call.op, call.attrs, call.outputs, call.inputs)
    yield from _check_slice(swapped)


def _joined(call: OpCall) -> tuple[Dim, ...]:
    dim, dims = call.attrs_as(ConcatAttrs).dim, call.inputs[0].dims
    return (*dims[:dim], as_dim(total(t.dims[dim] for t in call.inputs)), *dims[dim + 1 :])


@makes(_joined)
def _check_concat(call: OpCall) -> Iterator[str]:
    dim, out = call.attrs_as(ConcatAttrs).dim, call.outputs[0]
    if not all(0 <= dim < t.rank for t in (*call.inputs, out)):
        yield f"dim {dim} is not a dim of every tensor"
        return
    for t in call.inputs:
        yield from same_dims(t.dims[:dim] + t.dims[dim + 1 :], out.dims[:dim] + out.dims[dim + 1 :], "other dims")
    want = total(t.dims[dim] for t in call.inputs)
    made = without_lone(call.outputs[0].dims[dim])
    if as_expr(made) != as_expr(without_lone(want)):
        yield f"concat along dim {dim} gives {want}, has {call.outputs[0].dims[dim]}"


def _work_lookup(call: OpCall) -> Work:
    """Only the rows looked up are read, never the table."""
    rows = call.outputs[0].num_bytes
    return Work(read_bytes=rows + call.inputs[0].num_bytes, write_bytes=rows)


def _work_scatter_rows(call: OpCall) -> Work:
    """Zero the table's gradient, then read, add and write one row an id."""
    dy, table = call.inputs[0], call.outputs[0]
    return Work(
        vector_flops=dy.numel,
        read_bytes=dy.num_bytes * 2 + call.inputs[1].num_bytes,
        write_bytes=dy.num_bytes + table.num_bytes,
    )


@makes(lambda call: (*call.inputs[0].dims, call.inputs[1].dims[1]))
def _check_embedding(call: OpCall) -> Iterator[str]:
    ids, table = call.inputs
    if table.rank != 2:
        yield f"the table must be [rows, hidden], is {table}"
        return
    yield from same_dims(call.outputs[0].dims, (*ids.dims, table.dims[1]), "embedding [.., hidden]")


def _map_reshape(call: OpCall, _axis: str) -> IndexMap:
    """Blocks of equal size on both sides: one dim there is several dims here, outermost first.

    Of several dims to several only the leading factor is common. A packed dim may pass as a whole, where each of the
    tensors side by side has whole entries of the leading dim.
    """
    ends = [list[tuple[str, ...]]([()] * t.rank) for t in (call.inputs[0], call.outputs[0])]
    also: list[PlacementEntry] = []
    for number, block in enumerate(blocks(call.inputs[0].dims, call.outputs[0].dims)):
        count = max(map(len, block))
        factors = tuple(f"b{number}.{i}" for i in range(count))
        for end, dims in zip(ends, block, strict=True):
            if min(map(len, block)) > 1:
                end[dims[0]] = (factors[0], "")
            elif len(dims) == 1:
                end[dims[0]] = factors
            else:
                for dim, factor in zip(dims, factors, strict=True):
                    end[dim] = (factor,)
        if count > 1:
            also.append(PlacementEntry((Shard(block[0][0], packed=True),), (Shard(block[1][0], packed=True),)))
    return IndexMap((tuple(ends[0]),), (tuple(ends[1]),), linear=((0,),), also=tuple(also))


def blocks(source: Sequence[Dim], result: Sequence[Dim]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the smallest runs of dims (those of one entry left out) that have equally many entries on both sides.

    >>> list(blocks((2, 8, 1, 6), (16, 2, 3)))
    [([0, 1], [0]), ([3], [1, 2])]
    """
    left = [i for i, d in enumerate(source) if d != 1]
    right = [o for o, d in enumerate(result) if d != 1]
    while left and right:
        run = _smallest_run(source, result, left, right)
        if run is None:
            return
        yield run
        left, right = left[len(run[0]) :], right[len(run[1]) :]


def _smallest_run(
    source: Sequence[Dim], result: Sequence[Dim], left: Sequence[int], right: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Return the shortest runs at the front with equal products."""
    made = as_expr(1)
    products: dict[str, int] = {}
    for k, o in enumerate(right):
        made = made * result[o]
        products.setdefault(str(made), k + 1)
    given = as_expr(1)
    for k, i in enumerate(left):
        given = given * source[i]
        if str(given) in products:
            return list(left[: k + 1]), list(right[: products[str(given)]])
    return None


def _map_permute(call: OpCall, _axis: str) -> IndexMap:
    """Dims in another order."""
    dims = call.attrs_as(PermuteAttrs).dims
    return IndexMap((tensor(numbered(len(dims))),), (tensor(f"d{d}" for d in dims),), linear=((0,),), exact=True)


def _map_expand(call: OpCall, _axis: str) -> IndexMap:
    """New dims are the same for all; so are those that had one entry, which a rank may repeat as often as it needs."""
    source, result = call.inputs[0].dims, call.outputs[0].dims
    shift = len(result) - len(source)
    grows = [i + shift for i, d in enumerate(source) if d == 1 and result[i + shift] != 1]
    return IndexMap(
        (tensor(numbered(len(result), *grows)[shift:]),), (tensor(numbered(len(result))),), linear=((0,),), exact=True
    )


def _map_slice(call: OpCall, _axis: str) -> IndexMap:
    """Other dims stay; of a packed dim one of the tensors is taken, which is whole in itself or packed again.

    One behind the others may be a tensor of which every rank holds a copy.
    """
    wide, part = _range(call, call.inputs[0].rank)
    also = [PlacementEntry(*pair) for pair in _side_by_side(call, REPLICATE)]
    return IndexMap((wide,), (part,), linear=((0,),), also=tuple(also))


def _map_pad(call: OpCall, _axis: str) -> IndexMap:
    """The adjoint of slice: zeros in the place of the other tensors; of a copy's gradient each rank has a part."""
    wide, part = _range(call, call.outputs[0].rank)
    also = [PlacementEntry(part, wide) for wide, part in _side_by_side(call, PARTIAL)]
    return IndexMap((part,), (wide,), linear=((0,),), also=tuple(also))


def _range(call: OpCall, rank: int) -> tuple[Tensor, Tensor]:
    """Return the factors of what a range is taken out of, and of the range."""
    attrs = call.attrs_as(SliceAttrs)
    wide = [f"d{i}" if i != attrs.dim else None if attrs.drop else "x*" for i in range(rank)]
    part = (f"d{i}" if i != attrs.dim else "x" for i in range(rank) if i != attrs.dim or not attrs.drop)
    return tensor(wide), tensor(part)


def _side_by_side(call: OpCall, copy: Placement) -> Iterator[tuple[tuple[Placement], tuple[Placement]]]:
    """Yield how a packed dim and the range lie, where that is several tensors again, or a copy that every rank has."""
    attrs = call.attrs_as(SliceAttrs)
    packed = (Shard(attrs.dim, packed=True),)
    if not attrs.drop:
        yield packed, packed
        if attrs.start != 0:
            yield packed, (copy,)


def _map_concat(call: OpCall, _axis: str) -> IndexMap:
    """Other dims stay; pieces that are each in shards along the concat dim make a packed one."""
    dim, count, rank = call.attrs_as(ConcatAttrs).dim, len(call.inputs), call.outputs[0].rank
    piece = tensor("x" if i == dim else f"d{i}" for i in range(rank))
    joined = tensor("x*" if i == dim else f"d{i}" for i in range(rank))
    shard, packed = Shard(dim), (Shard(dim, packed=True),)
    also = [PlacementEntry((*(shard,) * (count - k), *(PARTIAL,) * k), packed) for k in range(1, count)]
    for flags in product((False, True), repeat=min(count, 6)):
        pieces = tuple(Shard(dim, packed=p) for p in (*flags, *(False,) * (count - len(flags))))
        also.append(PlacementEntry(pieces, packed))
    return IndexMap((piece,) * count, (joined,), linear=(tuple(range(count)),), also=tuple(also), exact=True)


def _map_embedding(call: OpCall, _axis: str) -> IndexMap:
    """Ids pick rows: rows of other ranks are zeros in a partial sum; columns and ids stay. Linear in the table."""
    ids = numbered(call.inputs[0].rank)
    return IndexMap((tensor(ids), tensor("vh")), (tensor((*ids, "h")),), sums=(("v", 0),), linear=((1,),), exact=True)


def _map_embedding_bwd(call: OpCall, _axis: str) -> IndexMap:
    """Rows of dy are added where their id says: a sum over ids, for all rows of the table or for some of them."""
    ids = [f"d{i}" for i in range(call.inputs[1].rank)]
    sums = tuple((f, 0) for f in ids)
    return IndexMap((tensor((*ids, "h")), tensor(ids)), (tensor("vh"),), sums, linear=((0,),))


OPS = (
    OpDef("reshape", OpClass.FREE, free, "the same elements under other dims", _check_reshape, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.RESHAPES}), index_map=_map_reshape,
          shard=ShardChoice(sums="always")),
    OpDef("permute", OpClass.FREE, free, "dims in another order", _check_permute, PermuteAttrs, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.PERMUTES}), index_map=_map_permute,
          shard=ShardChoice(sums="always")),
    OpDef("expand", OpClass.FREE, free, "repeat dims of size 1 without a copy", _check_expand, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.EXPANDS}), index_map=_map_expand,
          shard=ShardChoice(sums="always")),
    OpDef("slice", OpClass.FREE, free, "a range of one dim", _check_slice, SliceAttrs, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.TAKES_RANGE}), index_map=_map_slice,
          shard=ShardChoice(sums="always")),
    OpDef("pad", OpClass.MEMORY, traffic, "backward of slice: the range placed among zeros", _check_pad, SliceAttrs,
          max_inputs=1, index_map=_map_pad,
          shard=ShardChoice(order="as it lies", sums="always")),
    OpDef("concat", OpClass.MEMORY, traffic, "tensors side by side", _check_concat, ConcatAttrs,
          traits=frozenset({Trait.JOINS}), index_map=_map_concat,
          shard=ShardChoice(order="as it lies", sums="always")),
    OpDef("copy", OpClass.MEMORY, traffic, "a copy in another layout", makes(first_dims)(no_check), max_inputs=1,
          traits=frozenset({Trait.SAME_VALUES, Trait.COPIES}), index_map=map_unary,
          shard=ShardChoice(sums="backward")),
    OpDef("embedding", OpClass.MEMORY, _work_lookup, "rows of a table; inputs: ids, table", _check_embedding,
          min_inputs=2, max_inputs=2, traits=frozenset({Trait.READS_TABLE}), index_map=_map_embedding),
    OpDef("embedding_bwd", OpClass.MEMORY, _work_scatter_rows, "gradient of the table; inputs: dy, ids", no_check,
          min_inputs=2, max_inputs=2, traits=frozenset({Trait.BACKWARD}), index_map=_map_embedding_bwd,
          shard=ShardChoice(sums="always", gathers=True, follows=(1, 2), deaf=("h",))),
)  # fmt: skip
