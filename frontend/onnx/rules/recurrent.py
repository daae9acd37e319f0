"""LSTM, GRU and RNN: one product over all steps for what comes in, one a step for what goes round, and the state.

The state of an LSTM, c' = f c + i g, and of a GRU, h' = z h + (1 - z) n, is a gated recurrence
(`ir/ops/fused/scan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....ir.errors import NotUnderstoodError
from ....ir.ops.fused.scan import GATED, ScanAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.ops.tensors.pointwise import ElementwiseAttrs
from ....ir.sizes.expr import Dim
from ....ir.types import TensorType
from ..call import Call, Rule
from ..shapes.items import Item

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
    lasts = call.concat([_last(call, y) for y, _ in made], 0)
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


def _last(call: Call, y: Item) -> Item:
    return call.slice(y, 0, 0, 1)


RULES: Mapping[str, Rule] = dict.fromkeys(_GATES, _recurrent)
