"""Views (free) and the ops that move data as it lies: embedding, concat, copy."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import Dim, as_expr, total
from ...sizes.lone import without_lone
from ..base import Attrs, OpCall, OpClass, OpDef, Work, free, no_check, same_dims, same_numel, traffic
from ..traits import Trait


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


def _check_permute(call: OpCall) -> Iterator[str]:
    dims = call.attrs_as(PermuteAttrs).dims
    if sorted(dims) != list(range(call.inputs[0].rank)):
        yield f"permute {dims} does not name each dim of {call.inputs[0]} once"
        return
    yield from same_dims(call.outputs[0].dims, tuple(call.inputs[0].dims[d] for d in dims), "permute")


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


def _check_embedding(call: OpCall) -> Iterator[str]:
    ids, table = call.inputs
    if table.rank != 2:
        yield f"the table must be [rows, hidden], is {table}"
        return
    yield from same_dims(call.outputs[0].dims, (*ids.dims, table.dims[1]), "embedding [.., hidden]")


OPS = (
    OpDef("reshape", OpClass.FREE, free, "the same elements under other dims", _check_reshape, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.RESHAPES})),
    OpDef("permute", OpClass.FREE, free, "dims in another order", _check_permute, PermuteAttrs, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.PERMUTES})),
    OpDef("expand", OpClass.FREE, free, "repeat dims of size 1 without a copy", _check_expand, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.EXPANDS})),
    OpDef("slice", OpClass.FREE, free, "a range of one dim", _check_slice, SliceAttrs, max_inputs=1,
          traits=frozenset({Trait.VIEW, Trait.TAKES_RANGE})),
    OpDef("pad", OpClass.MEMORY, traffic, "backward of slice: the range placed among zeros", _check_pad, SliceAttrs,
          max_inputs=1),
    OpDef("concat", OpClass.MEMORY, traffic, "tensors side by side", _check_concat, ConcatAttrs,
          traits=frozenset({Trait.JOINS})),
    OpDef("copy", OpClass.MEMORY, traffic, "a copy in another layout", no_check, max_inputs=1,
          traits=frozenset({Trait.SAME_VALUES, Trait.COPIES})),
    OpDef("embedding", OpClass.MEMORY, _work_lookup, "rows of a table; inputs: ids, table", _check_embedding,
          min_inputs=2, max_inputs=2, traits=frozenset({Trait.READS_TABLE})),
    OpDef("embedding_bwd", OpClass.MEMORY, _work_scatter_rows, "gradient of the table; inputs: dy, ids", no_check,
          min_inputs=2, max_inputs=2, traits=frozenset({Trait.BACKWARD})),
)  # fmt: skip
