"""Banks of experts, whole and taken apart into rows, products and weighted sums, and grouped products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ....ir.ops.fused.experts import ExpertsAttrs, GroupedAttrs
from ....ir.ops.fused.routing import RoutedAttrs
from ..call import NotComputedError, RankCall, Reference, attrs_of, gradients, number, word

_Function = Callable[[Tensor], Tensor]
_ACTIVATIONS: Mapping[str, _Function] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    "relu2": lambda x: F.relu(x).square(),
}


def experts(call: RankCall) -> tuple[Tensor, ...]:
    """Result [t, h] of x [t, h], ids and weights [t, k], then routed tokens, up, act and down, token by token."""
    x, idx, weights, *bank = call.inputs
    attrs = attrs_of(call, ExpertsAttrs)
    rows = x.repeat_interleave(idx.shape[1], dim=0)
    rows = rows * weights.reshape(-1, 1) if number(call, "early", 0) else rows
    up, act, down = through(call, attrs, rows, idx.reshape(-1), bank)
    return _summed(call, down, weights), rows, up, act, down


def experts_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradients of x, routing weights, up, down and biases; of a bank taken apart, the same by its parts."""
    grad, x, idx, weights, up, down, rows, up_out, act, down_out = call.inputs
    attrs = attrs_of(call, ExpertsAttrs)
    ids, k = idx.reshape(-1), idx.shape[1]
    copies = grad.repeat_interleave(k, dim=0)
    early = bool(number(call, "early", 0))
    d_down = copies if early else copies * weights.reshape(-1, 1)
    d_rows, *d_bank = bank_grads(call, attrs, (d_down, rows, up, down, up_out, act), ids)
    sources = x.repeat_interleave(k, dim=0)
    d_weights = (d_rows * sources if early else copies * down_out).sum(1).view_as(weights)
    d_x = (d_rows * weights.reshape(-1, 1) if early else d_rows).view(-1, k, x.shape[1]).sum(1)
    return (d_x, d_weights, *d_bank)[: len(call.dims)]


def _summed(call: RankCall, down: Tensor, weights: Tensor) -> Tensor:
    """Rows of each token added up, weighted unless their tokens were."""
    rows = down.view(*weights.shape, down.shape[1])
    return rows.sum(1) if number(call, "early", 0) else (rows * weights.unsqueeze(2)).sum(1)


def through(
    call: RankCall, attrs: ExpertsAttrs, rows: Tensor, ids: Tensor, bank: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows through the up projection, the activation and the down projection of the expert of each."""
    up, down = (w if attrs.transposed else w.transpose(1, 2) for w in bank[:2])
    up_out = torch.einsum("ri,rio->ro", rows, up[ids])
    up_out = up_out + bank[2][ids] if attrs.bias else up_out
    act = _activated(call, attrs, up_out)
    made = torch.einsum("ri,rio->ro", act, down[ids])
    return up_out, act, made + bank[3][ids] if attrs.bias else made


def _activated(call: RankCall, attrs: ExpertsAttrs, x: Tensor) -> Tensor:
    """The activation of x, or of its gate half, times the other half; halves stand in blocks or alternate."""
    kind = word(call, "act", "silu")
    if not attrs.gated:
        return _activation(kind)(x)
    gate, up = (x[..., ::2], x[..., 1::2]) if number(call, "interleaved", 0) else x.chunk(2, dim=-1)
    if kind != "swiglu_oai":
        return _activation(kind)(gate) * up
    limit, alpha = number(call, "limit", 0.0), number(call, "alpha", 1.702)
    gate, up = (gate.clamp(max=limit), up.clamp(-limit, limit)) if limit else (gate, up)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def _activation(kind: str) -> _Function:
    if kind not in _ACTIVATIONS:
        raise NotComputedError(f"experts with the activation '{kind}'")
    return _ACTIVATIONS[kind]


def bank_grads(
    call: RankCall, attrs: ExpertsAttrs, tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], ids: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of rows, up, down and both biases of (gradient of down, rows, up, down, up and act as kept)."""
    d_down, rows, up, down, up_out, act = tensors
    first, last = (w if attrs.transposed else w.transpose(1, 2) for w in (up, down))
    d_act = torch.einsum("ro,rio->ri", d_down, last[ids])
    (d_up,) = gradients(lambda t: _activated(call, attrs, t[0]), (up_out,), d_act)
    d_rows = torch.einsum("ro,rio->ri", d_up, first[ids])
    hot = F.one_hot(ids, up.shape[0]).to(rows.dtype)
    grads = [torch.einsum("re,ri,ro->eio", hot, a, b) for a, b in ((rows, d_up), (act, d_down))]
    grads = grads if attrs.transposed else [g.transpose(1, 2) for g in grads]
    return (d_rows, *grads, hot.t() @ d_up, hot.t() @ d_down)


def grouped_matmul(call: RankCall) -> tuple[Tensor, ...]:
    """One product a group of rows; groups are told by their ends, or of one size where those say nothing."""
    a, b, *rest = call.inputs
    weight_grad = attrs_of(call, GroupedAttrs).weight_grad
    if a.dim() == 3 or (b.dim() == 2 and not weight_grad):
        raise NotComputedError("a grouped product whose groups are columns")
    rows = a.shape[1] if weight_grad else a.shape[0]
    num = call.dims[0][0] if weight_grad else b.shape[0]
    ends = rest[0].long() if rest and int(rest[0][-1]) == rows else (torch.arange(num) + 1) * (rows // num)
    ids = torch.searchsorted(ends, torch.arange(rows), right=True)
    if weight_grad:
        return (torch.einsum("re,kr,rn->ekn", F.one_hot(ids, num).to(a.dtype), a, b),)
    return (torch.einsum("rk,rkn->rn", a, b[ids]),)


def dispatch(call: RankCall) -> tuple[Tensor, ...]:
    """Rows [t k, h] of tokens, those of the first expert first; of `own` rows those of this rank's experts."""
    x, idx = call.inputs
    order = _order(call, idx)
    return (x[order // idx.shape[1]],)


def dispatch_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradient of tokens: the sum over the rows of each."""
    grad, idx = call.inputs
    made = grad.new_zeros(idx.shape[0], grad.shape[1])
    return (made.index_add_(0, _order(call, idx) // idx.shape[1], grad),)


def combine(call: RankCall) -> tuple[Tensor, ...]:
    """Weighted sum of a token's rows; where ranks have rows of their own experts, a part of the sum."""
    rows, weights, idx = call.inputs
    order = _order(call, idx)
    weighted = rows * weights.reshape(-1)[order].unsqueeze(1)
    return (rows.new_zeros(idx.shape[0], rows.shape[1]).index_add_(0, order // idx.shape[1], weighted),)


def combine_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradients of rows and of routing weights of (gradient, rows, weights, ids)."""
    grad, rows, weights, idx = call.inputs
    order = _order(call, idx)
    copies = grad[order // idx.shape[1]]
    d_weights = torch.zeros_like(weights).reshape(-1)
    d_weights[order] = (copies * rows).sum(1)
    return copies * weights.reshape(-1)[order].unsqueeze(1), d_weights.view_as(weights)


def _order(call: RankCall, idx: Tensor) -> Tensor:
    """Copies of tokens (token x k + place) as rows hold them: expert by expert, as many rows for each.

    The bank is not told where an expert's rows end, so that they must be as many for each. Ranks that take their own
    out of all rows have a block of them, the first axis of `own` dealt inside the next.
    """
    if number(call, "early", 0):
        raise NotComputedError("experts taken apart whose tokens are weighted before")
    ids = idx.reshape(-1).long()
    counts = torch.bincount(ids)
    if len(set(counts[counts > 0].tolist())) > 1:
        raise NotComputedError("tokens that do not spread evenly over experts")
    order = torch.argsort(ids, stable=True)
    attrs = call.node.attrs
    block, size = 0, 1
    for axis in attrs.own.axes if isinstance(attrs, RoutedAttrs) else ():
        block, size = block + call.rank.get(axis, 0) * size, size * call.degrees.get(axis, 1)
    if isinstance(attrs, RoutedAttrs) and attrs.capacity:
        raise NotComputedError("rows of a fixed capacity")
    own = len(order) // size
    return order[block * own : (block + 1) * own]


def expert_bank(call: RankCall) -> tuple[Tensor, ...]:
    """Result, up projection and activation of rows [r, h], as many for each expert, one expert after another."""
    rows, *bank = call.inputs
    up, act, down = through(call, attrs_of(call, ExpertsAttrs), rows, _even(rows, bank[0]), bank)
    return down, up, act


def expert_bank_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradients of rows, up, down and biases; a copy of the gradient in columns is read by a kernel, not here."""
    grad, rows, up, down, up_out, act = call.inputs[:6]
    ids = _even(rows, up)
    return bank_grads(call, attrs_of(call, ExpertsAttrs), (grad, rows, up, down, up_out, act), ids)[: len(call.dims)]


def _even(rows: Tensor, up: Tensor) -> Tensor:
    if rows.shape[0] % up.shape[0]:
        raise NotComputedError(f"{rows.shape[0]} rows that do not spread evenly over {up.shape[0]} experts")
    return torch.arange(up.shape[0]).repeat_interleave(rows.shape[0] // up.shape[0])


REFERENCES: Mapping[str, Reference] = {
    "experts": experts,
    "experts_bwd": experts_bwd,
    "grouped_matmul": grouped_matmul,
    "dispatch": dispatch,
    "dispatch_bwd": dispatch_bwd,
    "combine": combine,
    "combine_bwd": combine_bwd,
    "expert_bank": expert_bank,
    "expert_bank_bwd": expert_bank_bwd,
}
