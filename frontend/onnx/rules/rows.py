"""Norms, softmax, reductions, top-k and running sums; LSTM, GRU and RNN.

The state of an LSTM, c' = f c + i g, and of a GRU, h' = z h + (1 - z) n, is a gated recurrence
(`ir/ops/fused/scan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.fused.scan import GATED, ScanAttrs
from ....ir.ops.tensors.images import ChannelNormAttrs
from ....ir.ops.tensors.lookup import spec_of
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.ops.tensors.normalize import DimAttrs, NormAttrs, ReduceAttrs
from ....ir.ops.tensors.pointwise import ElementwiseAttrs
from ....ir.records import dataclass
from ....ir.sizes.expr import Dim
from ....ir.types import DType, TensorType
from ..call import Call, Rule, axis_of, numel
from ..shapes.items import Item
from .views import axes_of, known_dims

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "amax",
    "ReduceMin": "amin",
    "ReduceProd": "prod",
    "ReduceL1": "sum",
    "ReduceL2": "sum",
    "ReduceSumSquare": "sum",
    "ReduceLogSum": "sum",
    "ReduceLogSumExp": "logsumexp",
}


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
    parameters = [
        call.reshape(p, x.dims[-1:]) if p.dims != x.dims[-1:] and p.type.rank > 1 else p
        for p in (call.optional(1), call.optional(2))
        if p is not None
    ]
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
    rank = x.type.rank
    axes = axes_of(call, 1, rank) if call.has(1) else [axis_of(a, rank) for a in call.ints("axes") or ()]
    if not axes and call.int_("noop_with_empty_axes", 0):
        return (x,)
    dims = tuple(sorted(set(axes))) if axes else tuple(range(rank))
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
    axis = axes_of(call, 1, x.type.rank)[0]
    return (call.emit("cumsum", [x], [x.type], DimAttrs(axis))[0],)


def _topk(call: Call) -> Sequence[Item]:
    x = call.item(0)
    axis, k = call.axis(x.type.rank, -1), known_dims(call, 1)
    if len(k) != 1 or not x.dims:
        raise NotUnderstoodError(f"TopK of {k} entries of {x.type}")
    dims = (*x.dims[:axis], k[0], *x.dims[axis + 1 :])
    op = "sort" if k[0] == x.dims[axis] else "topk"
    return call.emit(op, [x], [TensorType(dims, x.type.dtype), TensorType(dims, DType.INT64)], DimAttrs(axis))


# Gates of a step, each as wide as the state.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True, slots=True)
class _Layer:
    """Sizes of a layer: x [steps, batch, width] and as many directions, each with a state of `hidden`."""

    x: Item
    hidden: int
    directions: int
    gates: int

    @property
    def lead(self) -> tuple[Dim, Dim]:
        """Steps and samples."""
        return self.x.dims[0], self.x.dims[1]


def _recurrent(call: Call) -> Sequence[Item | None]:
    """X, W [dirs, gates h, width], R [dirs, gates h, h], B, lengths, first h and c, peepholes -> Y, last h and c."""
    layer, batchwise = _layer(call), bool(call.int_("layout", 0))
    made = [_direction(call, layer, k) for k in range(layer.directions)]
    ys = call.concat([call.reshape(y, (*layer.lead, 1, layer.hidden)) for y, _ in made], 2)
    lasts = call.concat([call.slice(y, 0, 0, 1) for y, _ in made], 0)
    states = call.concat([s for _, s in made if s is not None], 0) if call.op == "LSTM" else None
    if batchwise:
        ends = [None if s is None else call.permute(s, (1, 0, 2)) for s in (lasts, states)]
        return (call.permute(ys, (1, 0, 2, 3)), *ends)
    return (call.permute(ys, (0, 2, 1, 3)), lasts, states)


def _layer(call: Call) -> _Layer:
    x, w, r = call.item(0), call.item(1), call.item(2)
    x = call.permute(x, (1, 0, 2)) if call.int_("layout", 0) and x.type.rank == 3 else x
    if x.type.rank != 3 or w.type.rank != 3 or r.type.rank != 3:
        raise NotUnderstoodError(f"{call.op} of {x.type} with {w.type} and {r.type}, which must have three dims")
    hidden, gates, directions = r.dims[2], _GATES[call.op], w.dims[0]
    if not isinstance(hidden, int) or directions not in (1, 2):
        raise NotUnderstoodError(f"{call.op} with {r.type} for {directions} directions")
    wide = (directions, gates * hidden)
    if w.dims != (*wide, x.dims[2]) or r.dims != (*wide, hidden) or not hidden:
        raise NotUnderstoodError(f"{call.op} of {x.type} with {w.type} and {r.type}")
    return _Layer(x, hidden, 2 if directions == 2 else 1, gates)


def _direction(call: Call, layer: _Layer, k: int) -> tuple[Item, Item | None]:
    """One direction: its results [steps, batch, hidden], and the last state of an LSTM as [1, batch, hidden].

    What goes round is a result of the step before: its product has the same sizes with what comes in, which stands for
    it, and reads the weights anew in each step.
    """
    x, h, wide = layer.x, layer.hidden, layer.gates * layer.hidden
    w, r = (call.slice(call.item(n), 0, k, 1, drop=True) for n in (1, 2))
    bias = [call.slice(call.slice(call.item(3), 0, k, 1, drop=True), 0, 0, wide)] if call.has(3) else []
    kind = TensorType((*layer.lead, wide), x.type.dtype)
    (given,) = call.emit("matmul", [x, w, *bias], [kind], MatmulAttrs("sbk,nk->sbn"))
    steps = call.expand(call.reshape(r, (1, *r.dims)), (layer.lead[0], *r.dims))
    round_ = call.slice(given, 2, 0, h)
    (back,) = call.emit("matmul", [round_, steps], [kind], MatmulAttrs("sbk,snk->sbn"))
    chain = ("add", "tanh") if call.op == "RNN" else ("add", "sigmoid")
    (gates,) = call.emit("elementwise", [given, back], [kind], ElementwiseAttrs(chain))
    call.build.note(f"{call.op}: the product of a state counts for all steps at once, its weights read anew in each")
    if call.op == "RNN":
        return gates, None
    parts = [call.slice(gates, 2, g * h, h) for g in range(layer.gates)]
    return _lstm(call, layer, parts) if call.op == "LSTM" else (_gru(call, layer, parts), None)


def _lstm(call: Call, layer: _Layer, parts: Sequence[Item]) -> tuple[Item, Item]:
    """Gates i, o, f, c: c' = f c + i tanh(c), h = o tanh(c')."""
    i, o, f, c = parts
    new = call.emit("elementwise", [i, c], [i.type], ElementwiseAttrs(("tanh", "mul")))[0]
    cells, last = _scan(call, layer, new, f)
    y = call.emit("elementwise", [o, cells], [o.type], ElementwiseAttrs(("tanh", "mul")))[0]
    return y, last


def _gru(call: Call, layer: _Layer, parts: Sequence[Item]) -> Item:
    """Gates z, r, h: h' = (1 - z) tanh(.. r ..) + z h."""
    z, r, n = parts
    new = call.emit("elementwise", [z, r, n], [z.type], ElementwiseAttrs(("mul", "add", "tanh", "sub", "mul")))[0]
    return _scan(call, layer, new, z)[0]


def _scan(call: Call, layer: _Layer, new: Item, decay: Item) -> tuple[Item, Item]:
    """Add what is new to what is left of the state, step by step; the state [batch, 1, 1, hidden] comes last."""
    steps, batch = layer.lead
    rows = (batch, steps, 1, layer.hidden)
    given = [call.reshape(call.permute(t, (1, 0, 2)), rows) for t in (new, decay)]
    state = TensorType((batch, 1, 1, layer.hidden), new.type.dtype)
    y, last = call.emit("scan", given, [new.type.with_dims(rows), state], ScanAttrs(GATED))
    y = call.permute(call.reshape(y, (batch, steps, layer.hidden)), (1, 0, 2))
    return y, call.reshape(last, (1, batch, layer.hidden))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _layer_norm),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization", "BatchNormalization"), _channel_norm),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumSum": _cumsum,
    "CumProd": _cumsum,
    "TopK": _topk,
    **dict.fromkeys(_GATES, _recurrent),
}
