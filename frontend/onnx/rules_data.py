"""Lookups, gathers and scatters, convolution and pooling, resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.errors import NotUnderstoodError, UnsupportedOpError
from ...ir.expr import Dim, as_dim, as_expr
from ...ir.types import TensorType
from .call import Call, Rule
from .items import Item
from .rules_views import known_dims


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
    return call.emit("gather", [data, places], [data.type.with_dims(dims)])


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
    return call.emit("gather", [data, places], [data.type.with_dims(places.dims)])


def _gather_nd(call: Call) -> Sequence[Item]:
    data, places = call.item(0), call.item(1)
    batch = call.int_("batch_dims", 0)
    depth = places.dims[-1] if places.dims else None
    if not isinstance(depth, int) or not 0 <= batch < places.type.rank or batch + depth > data.type.rank:
        raise NotUnderstoodError(f"GatherND of {data.type} at {places.type}")
    dims = (*places.dims[:-1], *data.dims[batch + depth :])
    return call.emit("gather", [data, places], [data.type.with_dims(dims)])


def _scatter(call: Call) -> Sequence[Item]:
    base = call.item(0)
    given = [base, *(i for i in call.inputs[1:3] if i is not None)]
    return call.emit("scatter", given, [base.type])


def _tensor_scatter(call: Call) -> Sequence[Item]:
    """New keys or values written into a cache of fixed length: only they move."""
    cache, new = call.item(0), call.item(1)
    return call.emit("scatter", [new], [cache.type])


def _pool(call: Call) -> Sequence[Item | None]:
    x = call.item(0)
    if x.type.rank < 3:
        raise NotUnderstoodError(f"{call.op} of {x.type}")
    if call.op.startswith("Global"):
        dims: tuple[Dim, ...] = (*x.dims[:2], *(1 for _ in x.dims[2:]))
    else:
        dims = (*x.dims[:2], *windows(call, x.dims[2:], call.ints("kernel_shape") or ()))
    return (call.copied("gather", x, dims), *(None for _ in call.node.output[1:]))


def windows(call: Call, sizes: Sequence[Dim], kernel: Sequence[int]) -> tuple[Dim, ...]:
    """Return how many places a window has along each dim, by strides, dilations and pads."""
    rank = len(sizes)
    strides, dilations = call.ints("strides") or (1,) * rank, call.ints("dilations") or (1,) * rank
    pads = call.ints("pads") or (0,) * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank == len(pads) / 2 or min(*strides, *kernel, 1) < 1:
        raise NotUnderstoodError(f"{call.op}: a window of {list(kernel)} over {rank} dims")
    if call.text("auto_pad", "NOTSET").startswith("SAME"):
        return tuple(_steps(d, s) for d, s in zip(sizes, strides, strict=True))
    if call.text("auto_pad", "NOTSET") == "VALID":
        pads = (0,) * (2 * rank)
    made: list[Dim] = []
    for i, size in enumerate(sizes):
        reach = as_expr(size) + pads[i] + pads[i + rank] - dilations[i] * (kernel[i] - 1) - 1
        made.append(_places(as_dim(reach), strides[i], call))
    return tuple(made)


def _steps(size: Dim, stride: int) -> Dim:
    if isinstance(size, int):
        return -(-size // stride)
    return as_dim(size / stride)


def _places(reach: Dim, stride: int, call: Call) -> Dim:
    if isinstance(reach, int):
        if reach < 0:
            raise NotUnderstoodError(f"{call.op}: the window is larger than what it goes over")
        return reach // stride + 1
    found = as_dim((reach + stride) / stride) if stride > 1 else as_dim(reach + 1)
    if isinstance(found, int) or found.is_integral:
        return found
    # (reach + stride) / stride rounded down: for sizes that the stride divides, the constant's remainder falls away.
    whole = as_expr(0)
    for monomial, c in as_expr(reach).terms:
        part = int(c // stride) if not monomial else c / stride
        whole = whole + type(whole)({monomial: part})
    made = as_dim(whole + 1)
    if not isinstance(made, int) and not made.is_integral:
        raise UnsupportedOpError(f"{call.op} with stride {stride} over a size of {reach}: not whole for all sizes")
    return made


def _resize(call: Call) -> Sequence[Item]:
    x = call.item(0)
    if call.has(3):
        dims = tuple(known_dims(call, 3))
    elif call.has(2) and (scales := call.item(2).content) is not None:
        dims = tuple(as_dim(as_expr(d) * s) for d, s in zip(x.dims, scales.reshape(-1).tolist(), strict=True))
    else:
        raise NotUnderstoodError("Resize to sizes that depend on data")
    return (call.copied("gather", x, dims),)


def _depends_on_data(call: Call) -> Sequence[Item]:
    raise UnsupportedOpError(f"{call.op} makes a size that depends on data")


RULES: Mapping[str, Rule] = {
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter), "TensorScatter": _tensor_scatter,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"), _pool),
    "Resize": _resize, "Upsample": _resize,
    **dict.fromkeys(("NonZero", "Unique", "Compress", "NonMaxSuppression"), _depends_on_data),
}  # fmt: skip
