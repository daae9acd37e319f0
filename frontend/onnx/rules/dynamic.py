"""Operators whose results are as long as data make them: the user, or the file, says how long.

A size `NAME.AXIS` is asked for where neither does; the price is that of a result of this size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.tensors.lookup import Labels, LookupAttrs, lookup_of
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.sizes.expr import Dim
from ....ir.types import DType, TensorType
from ..call import Call, Rule, numel
from ..shapes.items import Item


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
    rows, columns = (call.reshape(_corner(call, boxes), (batch, *d)) for d in ((number, 1), (1, number)))
    overlaps = call.pointwise("max", [rows, columns], (batch, number, number), DType.BOOL)
    kind = TensorType((call.bound(0), 3), DType.INT64)
    return call.emit("gather", [ordered, overlaps], [kind], LookupAttrs())


def _corner(call: Call, boxes: Item) -> Item:
    return call.slice(boxes, 2, 0, 1, drop=True)


RULES: Mapping[str, Rule] = {
    "NonZero": _non_zero, "Compress": _compress, "Unique": _unique, "NonMaxSuppression": _suppressed,
}  # fmt: skip
