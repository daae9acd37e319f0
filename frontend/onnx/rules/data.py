"""Lookups, gathers and scatters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.tensors.lookup import Labels, LookupAttrs, lookup_of
from ....ir.sizes.expr import Dim, as_dim, as_expr
from ....ir.types import TensorType
from ..call import Call, Rule
from ..shapes.items import Item


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


RULES: Mapping[str, Rule] = {
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter), "TensorScatter": _tensor_scatter,
}  # fmt: skip
