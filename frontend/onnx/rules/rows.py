"""Norms, softmax, reductions, top-k and running sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.tensors.images import ChannelNormAttrs
from ....ir.ops.tensors.lookup import spec_of
from ....ir.ops.tensors.normalize import DimAttrs, NormAttrs, ReduceAttrs
from ....ir.ops.tensors.pointwise import ElementwiseAttrs
from ....ir.sizes.expr import Dim
from ....ir.types import DType, TensorType
from ..call import Call, Rule, axis_of, numel
from ..shapes.items import Item
from .views import known_dims

_REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "amax", "ReduceMin": "amin", "ReduceProd": "prod",
    "ReduceL1": "sum", "ReduceL2": "sum", "ReduceSumSquare": "sum", "ReduceLogSum": "sum",
    "ReduceLogSumExp": "logsumexp",
}  # fmt: skip


def norm(call: Call, x: Item, parameters: Sequence[Item], kind: str) -> tuple[Item, Item]:
    """Write a norm over the last dim; return the result and one statistic a row."""
    stats = TensorType((*x.dims[:-1], 1), DType.FP32)
    y, row = call.emit("norm", [x, *parameters], [x.type, stats], NormAttrs(kind))
    return y, row


def _last_dims(call: Call, x: Item) -> Item:
    """A norm over several dims at the end is one over their flattening."""
    axis = call.axis(x.type.rank, -1)
    if axis == x.type.rank - 1:
        return x
    return call.reshape(x, (*x.dims[:axis], numel(x.dims[axis:])))


def _layer_norm(call: Call) -> Sequence[Item | None]:
    kind = "layer" if call.op == "LayerNormalization" else "rms"
    given = call.item(0)
    if not given.dims:
        raise NotUnderstoodError("a norm of a single number")
    x = _last_dims(call, given)
    parameters = [call.reshape(p, x.dims[-1:]) if p.dims != x.dims[-1:] and p.type.rank > 1 else p
                  for p in (call.optional(1), call.optional(2)) if p is not None]  # fmt: skip
    y, row = norm(call, x, parameters, kind)
    axis = call.axis(given.type.rank, -1)
    row = call.reshape(row, (*given.dims[:axis], *(1 for _ in given.dims[axis:]))) if len(call.node.output) > 1 else row
    return (call.reshape(y, given.dims), *(row for _ in call.node.output[1:]))


def _channel_norm(call: Call) -> Sequence[Item | None]:
    """Group, instance and batch norms: one pass that reads and writes the tensor."""
    x = call.item(0)
    if call.op == "BatchNormalization":
        return (_by_running_statistics(call, x), *(None for _ in call.node.output[1:]))
    y, _ = norm(call, x, [i for i in call.inputs[1:3] if i is not None], "layer")
    return (y,)


def fns(*names: str) -> ElementwiseAttrs:
    """Return the attributes of a chain of functions."""
    return ElementwiseAttrs(names)


def _by_running_statistics(call: Call, x: Item) -> Item:
    """A batch norm of a file: one multiply and one add a channel, of the statistics that the file holds."""
    small = [i for i in call.inputs[1:] if i is not None]
    for item in small:
        if item.type.rank != 1 or x.type.rank < 2:
            raise NotUnderstoodError(f"{item.type} for the channels of {x.type}")
    places = tuple(range(x.type.rank))
    attrs = ChannelNormAttrs("batch", spec_of([places, *((1,) for _ in small)], [places]), given=True)
    return call.emit("channel_norm", [x, *small], [x.type], attrs)[0]


def _softmax(call: Call) -> Sequence[Item]:
    x = call.item(0)
    return (call.emit("softmax", [x], [x.type], DimAttrs(call.axis(x.type.rank, -1)))[0],)


def _reduce(call: Call) -> Sequence[Item]:
    x = call.item(0)
    if call.has(1):
        axes = [axis_of(int(str(a)), x.type.rank) for a in known_dims(call, 1)]
    else:
        axes = [axis_of(a, x.type.rank) for a in call.ints("axes") or ()]
    if not axes and call.int_("noop_with_empty_axes", 0):
        return (x,)
    dims = tuple(sorted(set(axes))) if axes else tuple(range(x.type.rank))
    return (reduced(call, x, _REDUCTIONS[call.op], dims, bool(call.int_("keepdims", 1))),)


def reduced(call: Call, x: Item, fn: str, dims: tuple[int, ...], keep: bool, dtype: DType | None = None) -> Item:
    """Write a reduction over dims."""
    made: list[Dim] = [1 if i in dims else d for i, d in enumerate(x.dims) if keep or i not in dims]
    kind = TensorType(tuple(made), dtype or x.type.dtype)
    return call.emit("reduce", [x], [kind], ReduceAttrs(fn, dims, keep))[0]


def _arg(call: Call) -> Sequence[Item]:
    x = call.item(0)
    axis = call.axis(x.type.rank, 0)
    return (reduced(call, x, "argmax", (axis,), bool(call.int_("keepdims", 1)), DType.INT64),)


def _cumsum(call: Call) -> Sequence[Item]:
    x = call.item(0)
    axis = axis_of(int(str(known_dims(call, 1)[0])), x.type.rank)
    return (call.emit("cumsum", [x], [x.type], DimAttrs(axis))[0],)


def _topk(call: Call) -> Sequence[Item]:
    x = call.item(0)
    axis, k = call.axis(x.type.rank, -1), known_dims(call, 1)
    if len(k) != 1 or not x.dims:
        raise NotUnderstoodError(f"TopK of {k} entries of {x.type}")
    dims = (*x.dims[:axis], k[0], *x.dims[axis + 1 :])
    op = "sort" if k[0] == x.dims[axis] else "topk"
    return call.emit(op, [x], [TensorType(dims, x.type.dtype), TensorType(dims, DType.INT64)], DimAttrs(axis))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _layer_norm),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization", "BatchNormalization"), _channel_norm),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "ArgMax": _arg, "ArgMin": _arg, "CumSum": _cumsum, "CumProd": _cumsum, "TopK": _topk,
}  # fmt: skip
