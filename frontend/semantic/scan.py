"""Torch operators for recurrences along the sequence, short convolutions, LSTM, GRU, RNN, and norms of rows.

The state of an LSTM, c' = f c + i g, and of a GRU, h' = z h + (1 - z) n, is a gated recurrence
(`ir/ops/fused/scan.py`). What goes round is a result of the step before; a part of what comes in, which has its sizes,
stands for it.

As in `semantic`: they say what they take and make on fake tensors, and what their backward is; they compute nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...ir.errors import TraceError
from ...ir.ops.fused.scan import GATED
from ...ir.records import dataclass
from .semantic import NAMESPACE, custom_op


@custom_op(f"{NAMESPACE}::scan")
def _recorded_scan(
    v: Tensor,
    others: Sequence[Tensor],
    state: Tensor | None,
    kind: str,
    chunk: int,
    state_dim: int,
    least: float,
    most: float,
) -> tuple[Tensor, Tensor]:
    """Result [b, L, h, p] and state [b, h, n, p] (fp32) of a scan.

    Args:
        v: values [b, L, h, p].
        others: any of q and k [b, L, g, n], gates [b, L, h] or [b, L, h, x], parameters [h] or [h, n].
        state: the state to begin with [b, h, n, p], None for zeros.
        kind: selective, ssd, delta, linear or gated.
        chunk: tokens that run together; 0 is one step after another.
        state_dim: n.
        least: the smallest time step of a selective scan (kinds selective and ssd).
        most: the largest; negative for no limit.
    """
    b, _length, h, p = v.shape
    dtype = torch.float32 if state is None else state.dtype
    return v.new_empty(v.shape), v.new_empty(b, h, state_dim, p, dtype=dtype)


@custom_op(f"{NAMESPACE}::scan_bwd")
def scan_bwd(
    grad: Tensor,
    v: Tensor,
    others: Sequence[Tensor],
    state: Tensor | None,
    kind: str,
    chunk: int,
    state_dim: int,
    least: float,
    most: float,
) -> list[Tensor]:
    """Gradients of v and of the others, in order; states are made again from the operands."""
    return [t.new_empty(t.shape) for t in (v, *others)]


def _scan_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    v, others, state, *ctx.options = inputs
    ctx.has_state = state is not None
    ctx.save_for_backward(v, *others, *((state,) if ctx.has_state else ()))


def _scan_backward(ctx, grad, _grad_state):  # type: ignore[no-untyped-def]
    v, *others = ctx.saved_tensors
    state = others.pop() if ctx.has_state else None
    dv, *rest = scan_bwd(grad, v, others, state, *ctx.options)
    return dv, rest, *(None,) * (1 + len(ctx.options))


_recorded_scan.register_autograd(_scan_backward, setup_context=_scan_setup)


def scan(
    v: Tensor,
    others: Sequence[Tensor],
    state: Tensor | None,
    kind: str,
    chunk: int,
    state_dim: int,
    limits: tuple[float, float] = (0.0, -1.0),
) -> tuple[Tensor, Tensor]:
    """Record a scan; `limits` are the smallest and the largest time step of a selective one."""
    return _recorded_scan(v, others, state, kind, chunk, state_dim, *limits)


@custom_op(f"{NAMESPACE}::causal_conv")
def causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, activation: str, kept: int
) -> tuple[Tensor, Tensor]:
    """Result and state of a depthwise convolution over the past, with its activation.

    Args:
        x: [b, c, L].
        weight: [c, 1, k].
        bias: [c].
        state: inputs before the first of x [b, c, kept], None for zeros.
        activation: silu, or empty.
        kept: positions in the state.
    """
    return x.new_empty(x.shape), x.new_empty(*x.shape[:2], kept)


@custom_op(f"{NAMESPACE}::causal_conv_bwd")
def causal_conv_bwd(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias (empty without); what went into the activation is made again."""
    dbias = x.new_empty(0) if bias is None else bias.new_empty(bias.shape)
    return x.new_empty(x.shape), weight.new_empty(weight.shape), dbias


def _conv_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, weight, bias, _, ctx.activation, _ = inputs
    ctx.save_for_backward(x, weight, *(() if bias is None else (bias,)))


def _conv_backward(ctx, grad, _grad_state):  # type: ignore[no-untyped-def]
    x, weight, *rest = ctx.saved_tensors
    bias = rest[0] if rest else None
    dx, dw, db = causal_conv_bwd(grad, x, weight, bias, ctx.activation)
    return dx, dw, None if bias is None else db, None, None, None


causal_conv.register_autograd(_conv_backward, setup_context=_conv_setup)


@custom_op(f"{NAMESPACE}::keep_state")
def keep_state(state: Tensor, cache: Tensor | None) -> Tensor:
    """Say that a state stays in the cache: where `cache` lay, or in a new place."""
    return state.new_empty(state.shape)


@custom_op(f"{NAMESPACE}::l2_norm")
def l2_norm(x: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Rows of x [.., d] over their Euclidean length, and the reciprocal length of each row (fp32)."""
    return x.new_empty(x.shape), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)


@custom_op(f"{NAMESPACE}::l2_norm_bwd")
def l2_norm_bwd(grad: Tensor, x: Tensor, inverse: Tensor, eps: float = 1e-6) -> Tensor:
    """Gradient of x."""
    return x.new_empty(x.shape)


def _norm_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(inputs[0], output[1])
    ctx.eps = inputs[1]


def _norm_backward(ctx, grad, _grad_inverse):  # type: ignore[no-untyped-def]
    x, inverse = ctx.saved_tensors
    return l2_norm_bwd(grad, x, inverse, ctx.eps), None


l2_norm.register_autograd(_norm_backward, setup_context=_norm_setup)


_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@custom_op(f"{NAMESPACE}::step_product")
def step_product(x: Tensor, weight: Tensor) -> Tensor:
    """X [steps, batch, k] times weight [n, k], one step after another: [steps, batch, n]."""
    return x.new_empty(*x.shape[:2], weight.shape[0])


def _product_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _product_backward(ctx, grad):  # type: ignore[no-untyped-def]
    """The gradient of a state goes round as well; that of the weight is one product behind the last step."""
    x, weight = ctx.saved_tensors
    return step_product(grad, weight.t()), grad.flatten(0, 1).t() @ x.flatten(0, 1)


step_product.register_autograd(_product_backward, setup_context=_product_setup)


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
    kind: str,
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor] | Tensor,
    has_biases: bool,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Tensor, ...]:
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
