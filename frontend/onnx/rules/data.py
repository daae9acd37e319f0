"""Lookups, results whose length data say (then the user or the file says it), and sequences of a known length.

A size `NAME.AXIS` is asked for where neither does; the price is that of a result of this size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....ir.errors import NotUnderstoodError
from ....ir.ops.tensors.lookup import Labels, LookupAttrs, lookup_of
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.sizes.expr import Dim, as_dim, as_expr, divide_exactly
from ....ir.types import DType, TensorType
from ..call import Call, Rule, numel
from ..shapes.items import Item, constant, dtype_of
from .views import known_dims


def _gather(call: Call) -> Sequence[Item]:
    data, places = call.item(0), call.item(1)
    axis = call.axis(data.type.rank, 0)
    if not data.dims:
        raise NotUnderstoodError("Gather from a single number")
    if data.type.rank == 2 and axis == 0 and data.type.dtype.is_floating and places.content is None:
        return (embedded(call, places, data),)
    if places.is_scalar and places.content is not None:
        found = _selected(call, data, axis, places)
        if found is not None:
            return (found,)
    dims = (*data.dims[:axis], *places.dims, *data.dims[axis + 1 :])
    at = tuple(("at", k) for k in range(places.type.rank))
    rank = data.type.rank
    labels = [_without(rank, axis), at, (*range(axis), *at, *range(axis + 1, rank))]
    return call.emit("gather", [data, places], [data.type.with_dims(dims)], lookup_of(labels))


def _without(rank: int, axis: int) -> Labels:
    return tuple(None if k == axis else k for k in range(rank))


def _selected(call: Call, data: Item, axis: int, places: Item) -> Item | None:
    """One entry at a known place is a view."""
    assert places.content is not None
    place = places.content.reshape(-1)[0]
    if not isinstance(place, int):
        return None
    size = data.dims[axis]
    start: Dim = place if place >= 0 else as_dim(as_expr(size) + place)
    if isinstance(size, int) and isinstance(start, int) and not 0 <= start < size:
        raise NotUnderstoodError(f"Gather of entry {place} of {size}")
    item = call.slice(data, axis, start, 1, drop=True)
    return call.reshape(item, (*data.dims[:axis], *places.dims, *data.dims[axis + 1 :]))


def embedded(call: Call, ids: Item, table: Item) -> Item:
    """Write the lookup of rows of a table."""
    kind = TensorType((*ids.dims, table.dims[1]), table.type.dtype)
    return call.emit("embedding", [ids, table], [kind])[0]


def _gather_elements(call: Call) -> Sequence[Item]:
    data, places = call.item(0), call.item(1)
    rank, axis = data.type.rank, call.axis(data.type.rank, 0)
    pairs = enumerate(zip(places.dims, data.dims, strict=True))
    at = tuple("at" if k == axis else k if d == w else ("at", k) for k, (d, w) in pairs)
    return call.emit(
        "gather", [data, places], [data.type.with_dims(places.dims)], lookup_of([_without(rank, axis), at, at])
    )


def _gather_nd(call: Call) -> Sequence[Item]:
    data, places = call.item(0), call.item(1)
    batch = call.int_("batch_dims", 0)
    depth = places.dims[-1] if places.dims else None
    if not isinstance(depth, int) or not 0 <= batch < places.type.rank or batch + depth > data.type.rank:
        raise NotUnderstoodError(f"GatherND of {data.type} at {places.type}")
    dims = (*places.dims[:-1], *data.dims[batch + depth :])
    rank, lead = data.type.rank, range(batch)
    at = (*lead, *(("at", k) for k in range(batch, places.type.rank - 1)))
    x = tuple(None if batch <= k < batch + depth else k for k in range(rank))
    labels = [x, (*at, None), (*at, *range(batch + depth, rank))]
    return call.emit("gather", [data, places], [data.type.with_dims(dims)], lookup_of(labels))


def _scatter(call: Call) -> Sequence[Item]:
    base = call.item(0)
    given = [base, *(i for i in call.inputs[1:3] if i is not None)]
    adds = call.text("reduction", "none") == "add"
    return call.emit("scatter", given, [base.type], LookupAttrs(adds=adds))


def _tensor_scatter(call: Call) -> Sequence[Item]:
    """New keys or values written into a cache of fixed length: only they move."""
    cache, new = call.item(0), call.item(1)
    return call.emit("scatter", [new], [cache.type], LookupAttrs())


def _flat(call: Call, x: Item) -> Item:
    return call.reshape(x, (numel(x.dims),))


def _non_zero(call: Call) -> Sequence[Item]:
    """NonZero(x): a running count of what is not zero, then its places, [rank, count]."""
    x = call.item(0)
    flat = _flat(call, x)
    count = call.emit("cumsum", [flat], [TensorType(flat.dims, DType.INT64)], DimAttrs(0))[0]
    kind = TensorType((max(x.type.rank, 1), call.bound(1)), DType.INT64)
    return call.emit("gather", [count], [kind], LookupAttrs())


def _compress(call: Call) -> Sequence[Item]:
    """Compress(x, flags): a running count of flags, then the entries that they let through."""
    x, flags = call.item(0), call.item(1)
    flat = call.attributes.get("axis") is None
    x, axis = (_flat(call, x), 0) if flat else (x, call.axis(x.type.rank))
    count = call.emit("cumsum", [flags], [TensorType(flags.dims, DType.INT64)], DimAttrs(0))[0]
    dims: tuple[Dim, ...] = (*x.dims[:axis], call.bound(axis), *x.dims[axis + 1 :])
    kept: Labels = tuple(None if k == axis else k for k in range(x.type.rank))
    labels: list[Labels] = [kept, (None,), kept]
    return call.emit("gather", [x, count], [x.type.with_dims(dims)], lookup_of(labels))


def _unique(call: Call) -> Sequence[Item | None]:
    """Unique(x): sorted, then entries that differ from those before; their first places, the way back, counts."""
    x = call.item(0)
    flat = call.attributes.get("axis") is None
    x, axis = (_flat(call, x), 0) if flat else (x, call.axis(x.type.rank))
    ordered, _ = call.emit("sort", [x], [x.type, TensorType(x.dims, DType.INT64)], DimAttrs(axis))
    number, rows = call.bound(axis), x.dims[axis]
    dims: tuple[Dim, ...] = (*x.dims[:axis], number, *x.dims[axis + 1 :])
    y = call.emit("gather", [ordered], [x.type.with_dims(dims)], LookupAttrs())[0]
    lengths: tuple[Dim, ...] = (number, rows, number)
    wanted = call.node.output[1:4]
    places = [
        call.emit("gather", [ordered], [TensorType((length,), DType.INT64)], LookupAttrs())[0] if name else None
        for length, name in zip(lengths, wanted, strict=False)
    ]
    return (y, *places)


def _suppressed(call: Call) -> Sequence[Item]:
    """NonMaxSuppression(boxes [b, n, 4], scores [b, c, n]): scores sorted, overlaps of boxes, what is left [m, 3]."""
    boxes, scores = call.item(0), call.item(1)
    if boxes.type.rank != 3 or scores.type.rank != 3:
        raise NotUnderstoodError(f"NonMaxSuppression of {boxes.type} and {scores.type}, which must have three dims")
    ordered, _ = call.emit("sort", [scores], [scores.type, TensorType(scores.dims, DType.INT64)], DimAttrs(2))
    batch, number = boxes.dims[0], boxes.dims[1]
    rows, columns = (
        call.reshape(call.slice(boxes, 2, 0, 1, drop=True), (batch, *d)) for d in ((number, 1), (1, number))
    )
    overlaps = call.pointwise("max", [rows, columns], (batch, number, number), DType.BOOL)
    kind = TensorType((call.bound(0), 3), DType.INT64)
    return call.emit("gather", [ordered, overlaps], [kind], LookupAttrs())


MAX_PARTS = 4096


def sequence_of(parts: Sequence[Item], dtype: DType = DType.FP32) -> Item:
    """Return a sequence as an item; its type is that of its first tensor."""
    if len(parts) > MAX_PARTS:
        raise NotUnderstoodError(f"a sequence of {len(parts)} tensors; {MAX_PARTS} at most")
    return Item(parts[0].type if parts else TensorType((), dtype), parts=tuple(parts))


def _parts(call: Call, index: int = 0) -> tuple[Item, ...]:
    found = call.item(index).parts
    if found is None:
        raise NotUnderstoodError(f"input {index} is no sequence")
    return found


def _constructed(call: Call) -> Sequence[Item]:
    return (sequence_of([i for i in call.inputs if i is not None]),)


def _empty(call: Call) -> Sequence[Item]:
    return (sequence_of((), dtype_of(call.int_("dtype", 1), "SequenceEmpty")),)


def _place(call: Call, index: int, number: int, default: int) -> int:
    """Return a place in a sequence, counted from the front."""
    if not call.has(index):
        return default
    place = int(str(known_dims(call, index)[0]))
    if not -number <= place <= number:
        raise NotUnderstoodError(f"place {place} of a sequence of {number}")
    return place % number if place < 0 else place


def _at(call: Call) -> Sequence[Item]:
    parts = _parts(call)
    place = _place(call, 1, len(parts), 0)
    if place >= len(parts):
        raise NotUnderstoodError(f"place {place} of a sequence of {len(parts)}")
    return (parts[place],)


def _inserted(call: Call) -> Sequence[Item]:
    parts = list(_parts(call))
    parts.insert(_place(call, 2, len(parts), len(parts)), call.item(1))
    return (sequence_of(parts),)


def _erased(call: Call) -> Sequence[Item]:
    parts = list(_parts(call))
    place = _place(call, 1, len(parts), len(parts) - 1)
    return (sequence_of([*parts[:place], *parts[place + 1 :]], call.dtype(0)),)


def _length(call: Call) -> Sequence[Item]:
    return (constant(np.array(len(_parts(call)), dtype=object)),)


def _concatenated(call: Call) -> Sequence[Item]:
    parts = _parts(call)
    if not parts:
        raise NotUnderstoodError("ConcatFromSequence of nothing")
    if not call.int_("new_axis", 0):
        return (call.concat(parts, call.axis(parts[0].type.rank)),)
    return (call.stack(parts, call.int_("axis")),)


def _split(call: Call) -> Sequence[Item]:
    """SplitToSequence(x, sizes): a list of sizes, one size for all, or entries one by one."""
    x = call.item(0)
    axis, keep = call.axis(x.type.rank, 0), bool(call.int_("keepdims", 1))
    parts: list[Item] = []
    start: Dim = 0
    for size in _sizes(call, x.dims[axis]):
        drop = not call.has(1) and not keep
        parts.append(call.slice(x, axis, start, size, drop=drop))
        start = as_dim(as_expr(start) + size)
    return (sequence_of(parts, x.type.dtype),)


def _sizes(call: Call, whole: Dim) -> list[Dim]:
    if call.has(1) and call.item(1).type.rank == 1:
        return known_dims(call, 1)
    each = known_dims(call, 1)[0] if call.has(1) else 1
    number = divide_exactly(whole, each)
    if isinstance(whole, int) and isinstance(each, int) and each > 0 and whole // each < MAX_PARTS:
        return [min(each, whole - k) for k in range(0, whole, each)]
    if not isinstance(number, int) or not 0 < number <= MAX_PARTS:
        raise NotUnderstoodError(f"SplitToSequence of {whole} into pieces of {each}")
    return [each] * number


def _optional(call: Call) -> Sequence[Item | None]:
    """A value that may be left out is the value, or nothing."""
    return (call.optional(0),)


def _element(call: Call) -> Sequence[Item]:
    return (call.item(0),)


def _has_element(call: Call) -> Sequence[Item]:
    return (constant(np.array(call.has(0), dtype=object), DType.BOOL),)


_SEQUENCES: Mapping[str, Rule] = {
    "SequenceConstruct": _constructed,
    "SequenceEmpty": _empty,
    "SequenceAt": _at,
    "SequenceInsert": _inserted,
    "SequenceErase": _erased,
    "SequenceLength": _length,
    "ConcatFromSequence": _concatenated,
    "SplitToSequence": _split,
    "Optional": _optional,
    "OptionalGetElement": _element,
    "OptionalHasElement": _has_element,
}
# What takes sequences, or hands on whatever it is given.
TAKE_SEQUENCES = frozenset((*_SEQUENCES, "Identity", "Loop", "If", "Scan", "SequenceMap"))


RULES: Mapping[str, Rule] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter),
    "TensorScatter": _tensor_scatter,
    "NonZero": _non_zero,
    "Compress": _compress,
    "Unique": _unique,
    "NonMaxSuppression": _suppressed,
    **_SEQUENCES,
}
