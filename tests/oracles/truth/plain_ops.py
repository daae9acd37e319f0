"""Small versions of plain ops on one rank, each written from its definition; the rest are the product's references."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from slipstick.ir.ops.tensors.images import ChannelNormAttrs
from slipstick.ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.placement import Shard
from slipstick.verify.numeric.call import RankCall, Reference, attrs_of, share
from slipstick.verify.numeric.ops import attention, experts, scan

_ONE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + 0.7, "sub": lambda x: 0.7 - x, "mul": lambda x: x * 1.3, "div": lambda x: x / 1.7,
    "neg": torch.neg, "exp": torch.exp, "silu": F.silu, "gelu": F.gelu, "tanh": torch.tanh, "sqrt": lambda x: x * x,
    "square": torch.square, "reciprocal": lambda x: 1.3 / (x + 9.0), "remainder": lambda x: x.remainder(0.7),
    "floor_div": lambda x: x // 0.7, "softsign": F.softsign,
    "relu": F.relu, "clamp": lambda x: x.clamp(-0.1, 0.2), "sigmoid": torch.sigmoid,
}  # fmt: skip
_TWO: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "max": torch.maximum, "pow": lambda x, y: x,
    "silu_bwd": lambda g, x: torch.ops.aten.silu_backward(g, x), "dropout_bwd": lambda g, m: g * m * 2.0,
}  # fmt: skip


def _elementwise(call: RankCall) -> tuple[Tensor, ...]:
    x, *rest = call.inputs
    for fn in attrs_of(call, ElementwiseAttrs).fns:
        if fn == "addcmul":
            x, rest = x + rest[0] * rest[1], []
        elif rest:
            x, rest = _TWO[fn](x, rest[0]), rest[1:]
        else:
            x = _ONE[fn](x)
    return (x,)


def _matmul(call: RankCall) -> tuple[Tensor, ...]:
    a, b, *bias = call.inputs
    made = torch.einsum(attrs_of(call, MatmulAttrs).spec, a, b)
    return (made + bias[0] if bias else made,)


def _reduce(call: RankCall) -> tuple[Tensor, ...]:
    attrs, x = attrs_of(call, ReduceAttrs), call.inputs[0]
    if attrs.fn == "sum":
        return (x.sum(attrs.dims, keepdim=attrs.keepdim),)
    if attrs.fn == "mean":
        count = 1
        for d in attrs.dims:
            count *= x.shape[d] * share(call, 0, d)[1]
        return (x.sum(attrs.dims, keepdim=attrs.keepdim) / count,)
    return (x.amax(attrs.dims, keepdim=attrs.keepdim),)


def _slice(call: RankCall) -> tuple[Tensor, ...]:
    attrs, x = attrs_of(call, SliceAttrs), call.inputs[0]
    start = int(attrs.start) // share(call, 0, attrs.dim)[1]  # type: ignore[arg-type]
    if attrs.drop:
        return (x.select(attrs.dim, start),)
    return (x.narrow(attrs.dim, start, call.dims[0][attrs.dim]),)


def _pad(call: RankCall) -> tuple[Tensor, ...]:
    attrs, x = attrs_of(call, SliceAttrs), call.inputs[0]
    x = x.unsqueeze(attrs.dim) if attrs.drop else x
    degree = next(iter(call.degrees.values())) if _is_cut(call, attrs.dim) else 1
    made = x.new_zeros(call.dims[0])
    made.narrow(attrs.dim, int(attrs.start) // degree, x.shape[attrs.dim]).copy_(x)  # type: ignore[arg-type]
    return (made,)


def _is_cut(call: RankCall, dim: int) -> bool:
    """Whether a rank makes a part of a dim."""
    lies = [p for v in call.results for _, p in v.placements]
    return any(isinstance(p, Shard) and p.dim == dim for p in lies)


def _embedding(call: RankCall) -> tuple[Tensor, ...]:
    ids, table = call.inputs
    index, _ = share(call, 1, 0)
    local = ids.long() - index * table.shape[0]
    inside = (local >= 0) & (local < table.shape[0])
    return (table[local.clamp(0, table.shape[0] - 1)] * inside.unsqueeze(-1),)


def _embedding_bwd(call: RankCall) -> tuple[Tensor, ...]:
    dy, ids = call.inputs
    rows = call.dims[0][0]
    local = ids.long().reshape(-1) - (next(iter(call.rank.values())) * rows if _is_cut(call, 0) else 0)
    inside = (local >= 0) & (local < rows)
    made = dy.new_zeros(rows, dy.shape[-1])
    flat = dy.reshape(-1, dy.shape[-1]) * inside.unsqueeze(-1)
    return (made.index_add_(0, local.clamp(0, rows - 1), flat),)


def _gather(call: RankCall) -> tuple[Tensor, ...]:
    """Entries of the last dim: the same for all rows, or of each row its own."""
    x, ids = call.inputs
    return (x.index_select(-1, ids.long()) if ids.dim() == 1 else x.gather(-1, ids.long()),)


def _scatter(call: RankCall) -> tuple[Tensor, ...]:
    """Rows added to those of the base that ids name, as far as this rank has them."""
    base, ids, source = call.inputs
    local = ids.long() - share(call, 0, 0)[0] * base.shape[0]
    inside = (local >= 0) & (local < base.shape[0])
    return (base.index_add(0, local.clamp(0, base.shape[0] - 1), source * inside.unsqueeze(-1)),)


def _topk(call: RankCall) -> tuple[Tensor, ...]:
    dim = attrs_of(call, DimAttrs).dim
    values, places = call.inputs[0].topk(call.dims[0][dim], dim=dim)
    return values, places


def _same(call: RankCall) -> tuple[Tensor, ...]:
    return call.inputs[:1]


def _pairs(call: RankCall) -> tuple[Tensor, ...]:
    """The mean of each two positions; the way back, half the gradient to both."""
    x = call.inputs[0]
    if call.node.op == "window_bwd":
        return (x.repeat_interleave(2, dim=-1) / 2,)
    return (x.reshape(*x.shape[:-1], -1, 2).mean(-1),)


def _channel_norm(call: RankCall) -> tuple[Tensor, ...]:
    """Of each channel over samples and positions, or of each group of two channels over these and positions."""
    x, weight, bias = call.inputs
    y, mean, inverse = _normed(call, x)
    return y * weight[:, None] + bias[:, None], mean, inverse


def _normed(call: RankCall, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Before weight and bias; statistics as the call has them."""
    by_channel = attrs_of(call, ChannelNormAttrs).kind == "batch"
    rows = x if by_channel else x.reshape(x.shape[0], -1, 2, x.shape[2])
    over = (0, 2) if by_channel else (2, 3)
    mean = rows.mean(over, keepdim=True)
    inverse = torch.rsqrt(rows.var(over, correction=0, keepdim=True) + 1e-5)
    y = ((rows - mean) * inverse).reshape(x.shape)
    kept = (-1,) if by_channel else (x.shape[0], -1)
    return y, mean.reshape(kept), inverse.reshape(kept)


def _channel_norm_bwd(call: RankCall) -> tuple[Tensor, ...]:
    dy, x, weight, *_ = call.inputs
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    with torch.enable_grad():
        y = _normed(call, leaves[0])[0] * leaves[1][:, None]
    return *torch.autograd.grad(y, leaves, dy), dy.sum((0, 2))


PLAIN: Mapping[str, Reference] = {
    "elementwise": _elementwise, "matmul": _matmul, "reduce": _reduce, "slice": _slice, "pad": _pad,
    "embedding": _embedding, "embedding_bwd": _embedding_bwd, "topk": _topk, "gather": _gather,
    "scatter": _scatter, "cast": _same, "copy": _same,
    "identity": _same, "accumulate": _same,
    "reshape": lambda c: (c.inputs[0].reshape(c.dims[0]),),
    "expand": lambda c: (c.inputs[0].expand(c.dims[0]),),
    "permute": lambda c: (c.inputs[0].permute(attrs_of(c, PermuteAttrs).dims),),
    "concat": lambda c: (torch.cat(c.inputs, attrs_of(c, ConcatAttrs).dim),),
    "cumsum": lambda c: (c.inputs[0].cumsum(attrs_of(c, DimAttrs).dim),),
    "window": _pairs, "window_bwd": _pairs, "channel_norm": _channel_norm, "channel_norm_bwd": _channel_norm_bwd,
    "sort": lambda c: tuple(c.inputs[0].sort(attrs_of(c, DimAttrs).dim)),
}  # fmt: skip
FAMILIES = (attention, experts, scan)
REFERENCES: Mapping[str, Reference] = {**{k: v for m in FAMILIES for k, v in m.REFERENCES.items()}, **PLAIN}
