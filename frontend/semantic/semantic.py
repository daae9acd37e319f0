"""Semantic operators for torch: attention, experts, norms, rotary embedding and loss as one node each way.

Each operator has a schema and a shape rule for fake tensors, which are one function, and an autograd rule whose
backward is again one operator. They describe, they do not compute: calling one on real tensors raises. What they are
told beside tensors (a scale, an epsilon, how entries turn) is recorded as the meaning of the node, under the names of
the arguments here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.library import custom_op as torch_custom_op

from ...ir.errors import TraceError

NAMESPACE = "slipstick"

P = ParamSpec("P")
R = TypeVar("R")


class SemanticOp(Generic[P, R]):
    """A custom operator of torch, with the types of the function that it is made from, and the shapes that come out."""

    def __init__(self, name: str, shape_rule: Callable[P, R]) -> None:
        """Define the operator under its full name."""

        def refuse(*args: object, **kwargs: object) -> None:
            raise NotImplementedError(f"{name} describes a computation and runs on fake tensors only")

        schema = torch.library.infer_schema(shape_rule, mutates_args=())
        self._definition = torch_custom_op(name, refuse, mutates_args=(), schema=schema)
        self._definition.register_fake(shape_rule)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the operator on fake tensors."""
        out: R = self._definition(*args, **kwargs)
        return out

    def register_autograd(self, backward: Callable[..., object], setup_context: Callable[..., None]) -> None:
        """Say which operator is the backward, and what it needs to be kept."""
        self._definition.register_autograd(backward, setup_context=setup_context)


def custom_op(name: str) -> Callable[[Callable[P, R]], SemanticOp[P, R]]:
    """Make a semantic operator of a function that has its signature and makes results of its shapes."""
    return lambda shape_rule: SemanticOp(name, shape_rule)


@custom_op(f"{NAMESPACE}::attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    causal: bool,
    window: int,
    dropout: float,
    bias: Tensor | None = None,
    ids: Tensor | None = None,
    softcap: float = 0.0,
    scale: float = 0.0,
    chunk: int = 0,
) -> tuple[Tensor, Tensor]:
    """Result [b, s, h, d_v] and log-sum-exp [b, h, s] of q [b, h, s, d], k [b, g, t, d], v [b, g, t, d_v].

    `bias` [b or 1, h or 1, s or 1, t] is added to the scores; `ids` [b, s, n] are the keys that each query reads;
    `softcap` > 0 bends scores to softcap tanh(score / softcap). `scale` multiplies the products, 0 for d^-0.5; with
    `chunk` > 0 a query sees keys of its own chunk alone.
    """
    b, h, s, _ = q.shape
    if h % k.shape[1]:
        raise TraceError(f"{h} query heads cannot share {k.shape[1]} key-value heads evenly")
    if bias is not None and bias.dim() != 4:
        raise TraceError(f"the bias of attention needs the dims [batch, heads, queries, keys], has {bias.dim()}")
    return q.new_empty(b, s, h, v.shape[-1]), q.new_empty(b, h, s, dtype=torch.float32)


@custom_op(f"{NAMESPACE}::attention_bwd")
def attention_bwd(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, sinks: Tensor | None,
    causal: bool, window: int, dropout: float, bias: Tensor | None, ids: Tensor | None, softcap: float, learned: bool,
    scale: float = 0.0, chunk: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, v, of the sinks (empty without sinks), and of the bias (empty unless it is `learned`)."""
    dsinks = q.new_empty(0) if sinks is None else torch.empty_like(sinks)
    dbias = torch.empty_like(bias) if bias is not None and learned else q.new_empty(0)
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), dsinks, dbias


def _attention_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    q, k, v, sinks, ctx.causal, ctx.window, ctx.dropout, bias, ids, ctx.softcap, ctx.scale, ctx.chunk = inputs
    ctx.given = [t is not None for t in (sinks, bias, ids)]
    ctx.save_for_backward(q, k, v, *output, *(t for t in (sinks, bias, ids) if t is not None))


def _attention_backward(ctx, grad, _grad_lse):  # type: ignore[no-untyped-def]
    q, k, v, out, lse, *rest = ctx.saved_tensors
    sinks, bias, ids = (rest.pop(0) if given else None for given in ctx.given)
    learned = bias is not None and ctx.needs_input_grad[7]
    dq, dk, dv, dsinks, dbias = attention_bwd(
        grad, q, k, v, out, lse, sinks, ctx.causal, ctx.window, ctx.dropout, bias, ids, ctx.softcap, learned,
        ctx.scale, ctx.chunk,
    )  # fmt: skip
    return dq, dk, dv, None if sinks is None else dsinks, *(None,) * 3, dbias if learned else None, *(None,) * 4


attention.register_autograd(_attention_backward, setup_context=_attention_setup)


@custom_op(f"{NAMESPACE}::index_keys")
def index_keys(q: Tensor, k: Tensor, weights: Tensor, keys: int, causal: bool) -> Tensor:
    """Ids [b, s, keys] of those of k [b, 1, t, d] that heads q [b, h, s, d], weighted [b, s, h], score best."""
    return q.new_empty(q.shape[0], q.shape[2], keys, dtype=torch.int32)


@custom_op(f"{NAMESPACE}::experts")
def experts(
    x: Tensor, idx: Tensor, weights: Tensor, up: Tensor, down: Tensor, up_bias: Tensor | None,
    down_bias: Tensor | None, gated: bool, transposed: bool, act: str = "silu", interleaved: bool = False,
    alpha: float = 1.702, limit: float = 0.0, early: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Result [tokens, hidden], then what backward needs: routed tokens, up, activation, down ([tokens x k, ..]).

    `act` names the activation; gate and up stand side by side in the rows of `up`, or in turns (`interleaved`). Where
    `limit` > 0 both are clamped; `alpha` is the slope of `swiglu_oai`. `early` weights a token before its experts.
    """
    rows, hidden = x.shape[0] * idx.shape[1], x.shape[1]
    width = up.shape[2] if transposed else up.shape[1]
    ffn = down.shape[1] if transposed else down.shape[2]
    routed, up_out, made, down_out = (x.new_empty(rows, n) for n in (hidden, width, ffn, hidden))
    return torch.empty_like(x), routed, up_out, made, down_out


@custom_op(f"{NAMESPACE}::experts_bwd")
def experts_bwd(
    grad: Tensor, x: Tensor, idx: Tensor, weights: Tensor, up: Tensor, down: Tensor, routed: Tensor,
    up_out: Tensor, act_out: Tensor, down_out: Tensor, gated: bool, transposed: bool, bias: bool, act: str = "silu",
    interleaved: bool = False, alpha: float = 1.702, limit: float = 0.0, early: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x, routing weights, up, down and of the biases (empty without)."""
    num, width, hidden = up.shape[0], up_out.shape[1], x.shape[1]
    biases = (x.new_empty(num, width), x.new_empty(num, hidden)) if bias else (x.new_empty(0), x.new_empty(0))
    return torch.empty_like(x), torch.empty_like(weights), torch.empty_like(up), torch.empty_like(down), *biases


def _experts_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, idx, weights, up, down, up_bias, _, ctx.gated, ctx.transposed, *ctx.function = inputs
    ctx.bias = up_bias is not None
    ctx.save_for_backward(x, idx, weights, up, down, *output[1:])


def _experts_backward(ctx, grad, *_unused):  # type: ignore[no-untyped-def]
    x, idx, weights, up, down, routed, up_out, act, down_out = ctx.saved_tensors
    dx, dw, dup, ddown, b_up, b_down = experts_bwd(
        grad, x, idx, weights, up, down, routed, up_out, act, down_out, ctx.gated, ctx.transposed, ctx.bias,
        *ctx.function,
    )  # fmt: skip
    biases = (b_up, b_down) if ctx.bias else (None, None)
    return dx, None, dw, dup, ddown, *biases, *(None,) * 7


experts.register_autograd(_experts_backward, setup_context=_experts_setup)


@custom_op(f"{NAMESPACE}::rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    """X / rms(x) times (offset + weight), and the reciprocal root mean square of each row (fp32)."""
    return torch.empty_like(x), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)


@custom_op(f"{NAMESPACE}::rms_norm_bwd")
def rms_norm_bwd(
    grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor, eps: float = 1e-6, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Gradients of x and weight."""
    return torch.empty_like(x), torch.empty_like(weight)


def _norm_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(inputs[0], output[1], inputs[1])
    ctx.eps, ctx.offset = inputs[2:]


def _norm_backward(ctx, grad, _grad_rstd):  # type: ignore[no-untyped-def]
    x, rstd, weight = ctx.saved_tensors
    return *rms_norm_bwd(grad, x, rstd, weight, ctx.eps, ctx.offset), None, None


rms_norm.register_autograd(_norm_backward, setup_context=_norm_setup)


@custom_op(f"{NAMESPACE}::rope")
def rope(x: Tensor, cos: Tensor, sin: Tensor, style: str = "half") -> Tensor:
    """Rotary embedding of x [b, h, s, d] by tables [b, 1, s, d]; `style` says which entries turn together."""
    return torch.empty_like(x)


@custom_op(f"{NAMESPACE}::rope_bwd")
def rope_bwd(grad: Tensor, cos: Tensor, sin: Tensor, style: str = "half") -> Tensor:
    """Rotation by the opposite angle."""
    return torch.empty_like(grad)


def _rope_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(inputs[1], inputs[2])
    ctx.style = inputs[3]


def _rope_backward(ctx, grad):  # type: ignore[no-untyped-def]
    cos, sin = ctx.saved_tensors
    return rope_bwd(grad, cos, sin, ctx.style), None, None, None


rope.register_autograd(_rope_backward, setup_context=_rope_setup)


@custom_op(f"{NAMESPACE}::cross_entropy")
def cross_entropy(
    logits: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> tuple[Tensor, Tensor]:
    """Mean loss (or the sum) and, a row, the maximum, the sum of exponentials and the target's logit (fp32)."""
    return logits.new_empty(()), logits.new_empty(*logits.shape[:-1], 3, dtype=torch.float32)


@custom_op(f"{NAMESPACE}::cross_entropy_bwd")
def cross_entropy_bwd(
    grad: Tensor, logits: Tensor, target: Tensor, stats: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Gradient of the logits."""
    return torch.empty_like(logits)


def _loss_setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:2], output[1])
    ctx.said = inputs[2:]


def _loss_backward(ctx, grad, _grad_stats):  # type: ignore[no-untyped-def]
    logits, target, stats = ctx.saved_tensors
    return cross_entropy_bwd(grad, logits, target, stats, *ctx.said), None, None, None


cross_entropy.register_autograd(_loss_backward, setup_context=_loss_setup)


@custom_op(f"{NAMESPACE}::kv_append")
def kv_append(cache: Tensor | None, new: Tensor) -> Tensor:
    """The cache [b, g, t, d] with new tokens behind it."""
    b, g, t, d = new.shape
    return new.new_empty(b, g, t if cache is None else cache.shape[2] + t, d)
