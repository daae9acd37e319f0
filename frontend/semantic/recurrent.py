"""LSTM, GRU and RNN of torch as what runs: one product for all that comes in, one a step for what goes round, a scan.

The state of an LSTM, c' = f c + i g, and of a GRU, h' = z h + (1 - z) n, is a gated recurrence
(`ir/ops/fused/scan.py`). What
goes round is a result of the step before; a part of what comes in, which has its sizes, stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...ir.errors import TraceError
from ...ir.ops.fused.scan import GATED
from .scan import scan
from .semantic import NAMESPACE, custom_op

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@custom_op(f"{NAMESPACE}::step_product")
def step_product(x: Tensor, weight: Tensor) -> Tensor:
    """X [steps, batch, k] times weight [n, k], one step after another: [steps, batch, n]."""
    raise NotImplementedError(f"{NAMESPACE}::step_product describes a computation and runs on fake tensors only")


@step_product.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], weight.shape[0])


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    """The gradient of a state goes round as well; that of the weight is one product behind the last step."""
    x, weight = ctx.saved_tensors
    return step_product(grad, weight.t()), grad.flatten(0, 1).t() @ x.flatten(0, 1)


step_product.register_autograd(_backward, setup_context=_setup)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Of one layer in one direction: w_ih [gates h, width], w_hh [gates h, h or p], both biases, w_hr [p, h]."""

    given: Tensor
    round: Tensor
    given_bias: Tensor | None = None
    round_bias: Tensor | None = None
    project: Tensor | None = None


def _layers(kind: str, params: Sequence[Tensor], has_biases: bool, directions: int, count: int) -> list[_Weights]:
    each, rest = divmod(len(params), count * directions)
    assert not rest, f"{len(params)} tensors for {count} layers of {kind}"
    made: list[_Weights] = []
    for k in range(count * directions):
        own = list(params[k * each : (k + 1) * each])
        biases = own[2:4] if has_biases else [None, None]
        made.append(_Weights(own[0], own[1], *biases, *own[4 if has_biases else 2 :]))
    return made


def _run(
    kind: str, input: Tensor, hx: Tensor | Sequence[Tensor], params: Sequence[Tensor] | Tensor, has_biases: bool,
    num_layers: int = 1, dropout: float = 0.0, train: bool = False, bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Run `torch.lstm(input, (h, c), weights, ..)` and its like: results, last h [layers x ways, batch, h], last c."""
    if isinstance(params, Tensor) or not isinstance(has_biases, bool):
        raise TraceError(
            "a PackedSequence has lengths that only data tell; give the layer the padded batch [batch, seq, features]"
        )
    directions = 2 if bidirectional else 1
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    x = input.transpose(0, 1) if batch_first else input
    weights = _layers(kind, params, has_biases, directions, num_layers)
    ends: list[tuple[Tensor, ...]] = []
    for layer in range(num_layers):
        if layer and dropout and train:
            x = F.dropout(x, dropout, train)
        made = []
        for k in range(layer * directions, (layer + 1) * directions):
            y, *end = _direction(kind, x, weights[k], [s[k] for s in states], backward=bool(k % directions))
            made.append(y)
            ends.append(tuple(end))
        x = torch.cat(made, -1) if bidirectional else made[0]
    last = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return (x.transpose(0, 1) if batch_first else x, *last)


def _direction(kind: str, x: Tensor, w: _Weights, states: Sequence[Tensor], backward: bool) -> tuple[Tensor, ...]:
    """Results [steps, batch, h], the last of them, and the last cell of an LSTM; the last step of a way back is 0."""
    given = F.linear(x, w.given, w.given_bias)
    around = given.narrow(-1, 0, w.round.shape[1])
    if states[0].requires_grad:
        around = torch.cat([states[0].unsqueeze(0), around[1:]])
    back = step_product(around, w.round)
    back = back if w.round_bias is None else back + w.round_bias
    end = 0 if backward else -1
    if kind == "lstm":
        y, cells = _lstm(given + back, states[1])
        y = y if w.project is None else step_product(y, w.project)
        return y, y[end], cells[end]
    y = _gru(given, back) if kind == "gru" else (given + back).tanh() if kind == "rnn_tanh" else (given + back).relu()
    return y, y[end]


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """C' = f c + i tanh(g), h = o tanh(c'), with the gates i, f, g, o side by side."""
    i, f, g, o = gates.chunk(_GATES["lstm"], -1)
    new, kept = i.sigmoid() * g.tanh(), f.sigmoid()
    if cell.requires_grad:
        new = torch.cat([new[:1] + kept[:1] * cell, new[1:]])
    cells = _scan(new, kept)
    return o.sigmoid() * cells.tanh(), cells


def _gru(given: Tensor, back: Tensor) -> Tensor:
    """H' = (1 - z) n + z h with n = tanh(given + r back), and the gates r, z, n side by side."""
    (r, z, n), (to_r, to_z, to_n) = given.chunk(_GATES["gru"], -1), back.chunk(_GATES["gru"], -1)
    keep = (z + to_z).sigmoid()
    return _scan((1 - keep) * (n + (r + to_r).sigmoid() * to_n).tanh(), keep)


def _scan(new: Tensor, kept: Tensor) -> Tensor:
    """Add what is new to what is kept of the state, [steps, batch, h], step by step."""
    rows = [t.transpose(0, 1).unsqueeze(2) for t in (new, kept)]
    states, _ = scan(rows[0], rows[1:], None, GATED, 0, 1)
    return states.squeeze(2).transpose(0, 1)


LIFTED: Mapping[Callable[..., object], Callable[..., object]] = {
    getattr(torch, kind): partial(_run, kind) for kind in _GATES
}

__all__ = ["LIFTED", "step_product"]
