"""Custom operators of torch for recurrences along the sequence and for the short convolutions in front of them.

As in `semantic`: they say what they take and make on fake tensors, and what their backward is; they compute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .semantic import NAMESPACE, custom_op


def _refuse(name: str) -> Tensor:
    raise NotImplementedError(f"slipstick::{name} describes a computation and runs on fake tensors only")


@custom_op(f"{NAMESPACE}::scan")
def _recorded_scan(
    v: Tensor, others: Sequence[Tensor], state: Tensor | None, kind: str, chunk: int, state_dim: int,
    least: float, most: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
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
    return _refuse("scan"), v


@_recorded_scan.register_fake
def _(
    v: Tensor, others: Sequence[Tensor], state: Tensor | None, kind: str, chunk: int, state_dim: int,
    least: float, most: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    b, _length, h, p = v.shape
    dtype = torch.float32 if state is None else state.dtype
    return v.new_empty(v.shape), v.new_empty(b, h, state_dim, p, dtype=dtype)


@custom_op(f"{NAMESPACE}::scan_bwd")
def scan_bwd(
    grad: Tensor, v: Tensor, others: Sequence[Tensor], state: Tensor | None, kind: str, chunk: int, state_dim: int,
    least: float, most: float,
) -> list[Tensor]:  # fmt: skip
    """Gradients of v and of the others, in order; states are made again from the operands."""
    return [_refuse("scan_bwd")]


@scan_bwd.register_fake
def _(
    grad: Tensor, v: Tensor, others: Sequence[Tensor], state: Tensor | None, kind: str, chunk: int, state_dim: int,
    least: float, most: float,
) -> list[Tensor]:  # fmt: skip
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
    v: Tensor, others: Sequence[Tensor], state: Tensor | None, kind: str, chunk: int, state_dim: int,
    limits: tuple[float, float] = (0.0, -1.0),
) -> tuple[Tensor, Tensor]:  # fmt: skip
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
    return _refuse("causal_conv"), x


@causal_conv.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, activation: str, kept: int
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(*x.shape[:2], kept)


@custom_op(f"{NAMESPACE}::causal_conv_bwd")
def causal_conv_bwd(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias (empty without); what went into the activation is made again."""
    return _refuse("causal_conv_bwd"), x, x


@causal_conv_bwd.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> tuple[Tensor, Tensor, Tensor]:
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
    return _refuse("keep_state")


@keep_state.register_fake
def _(state: Tensor, cache: Tensor | None) -> Tensor:
    return state.new_empty(state.shape)
