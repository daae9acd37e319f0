"""Recurrences along the sequence, one step after another, convolutions, and what changes no number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ....ir.ops import Trait, has
from ....ir.ops.fused.scan import DELTA, GATED, KEEP_STATE, LINEAR, ScanAttrs
from ....ir.ops.tensors.conv import ConvAttrs
from ....ir.records import dataclass
from ..call import NotComputedError, RankCall, Reference, attrs_of, gradients, number, share


def conv(call: RankCall) -> tuple[Tensor, ...]:
    """Result, and where there is a state the last inputs, of x, weight, bias where given, state where given."""
    attrs = attrs_of(call, ConvAttrs)
    x, weight, *rest = call.inputs
    state = rest.pop() if attrs.has_state else None
    y = _convolved(call, attrs, (x, weight, *rest), state)
    if len(call.dims) == 1:
        return (y,)
    seen = x if state is None else torch.cat((state, x), dim=2)
    kept = call.dims[1][2]
    return y, seen[..., seen.shape[2] - kept :]


def conv_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Those of the gradients of x, weight and bias that the call makes, told by their dims."""
    attrs = attrs_of(call, ConvAttrs)
    grad, x, weight, *bias = call.inputs
    found = gradients(lambda t: _convolved(call, attrs, t, None), (x, weight, *bias), grad)
    sums = grad.flatten(2).sum((0, 2))
    made = {x.shape: found[0], weight.shape: found[1]}
    return tuple((found[2] if bias else sums) if len(d) == 1 else made[torch.Size(d)] for d in call.dims)


def _convolved(call: RankCall, attrs: ConvAttrs, tensors: Sequence[Tensor], state: Tensor | None) -> Tensor:
    x, weight, *bias = tensors
    padding: tuple[int, ...] = attrs.padding
    if attrs.causal:
        if share(call, 1 if has(call.node, Trait.BACKWARD) else 0, 2)[1] > 1:
            raise NotComputedError("a causal convolution over a split sequence, which reads positions of a neighbour")
        # The positions that the first results read beside their own: those of a state, else zeros.
        past = x.new_zeros(*x.shape[:2], weight.shape[2] - 1)
        if state is not None:
            past = torch.cat((past, state), dim=2)[..., state.shape[2] :]
        x, padding = torch.cat((past, x), dim=2), (0,)
    groups = int(number(call, "groups", 1)) if attrs.transposed else x.shape[1] // weight.shape[1]
    y = torch.convolution(
        x,
        weight,
        bias[0] if bias else None,
        attrs.stride,
        padding,
        attrs.dilation,
        attrs.transposed,
        (0,) * len(padding),
        groups,
    )
    if attrs.activation not in ("", "silu"):
        raise NotComputedError(f"a convolution with the activation '{attrs.activation}'")
    return F.silu(y) if attrs.activation else y


def same(call: RankCall) -> tuple[Tensor, ...]:
    """The tensors themselves: precision, host and device are no part of what is verified."""
    return tuple(call.inputs[i % len(call.inputs)] for i in range(len(call.dims)))


def parameters(call: RankCall) -> tuple[Tensor, ...]:
    """An update writes parameters; whose gradients are right is checked before it."""
    return call.inputs[: len(call.dims)]


_L2_EPS = 1e-6


def scan(call: RankCall) -> tuple[Tensor, ...]:
    """Result [b, L, h, p] and state [b, h, n, p] of values, operands and the state before."""
    return _run(call, attrs_of(call, ScanAttrs), call.inputs)[: len(call.dims)]


def scan_bwd(call: RankCall) -> tuple[Tensor, ...]:
    """Gradients of values and operands, in order; not of the state before."""
    grad, *given = call.inputs
    return gradients(lambda t: _run(call, attrs_of(call, ScanAttrs), t)[0], given, grad)[: len(call.dims)]


@dataclass(frozen=True, slots=True)
class _Steps:
    """What every step needs, [b, L, h, ..]: S = decay S + k v^T, y = S^T q.

    `beta` makes it a delta rule: what the state holds under k is taken off v first.
    """

    v: Tensor
    q: Tensor
    k: Tensor
    decay: Tensor
    beta: Tensor | None = None


def _run(call: RankCall, attrs: ScanAttrs, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    operands = inputs[: len(inputs) - attrs.has_state]
    state = inputs[-1] if attrs.has_state else None
    v, *others = operands
    if attrs.kind == GATED:
        return _gated(v, others, state)
    if attrs.kind == LINEAR and len(others) != 3:
        return _xlstm(v, others, state)
    if attrs.kind == LINEAR and others[0].dim() == 3:
        return _rwkv(v, others, state)
    if attrs.kind == LINEAR:
        q, k, slope = others
        decay = torch.exp(-slope).reshape(1, 1, -1, 1).expand(*v.shape[:3], 1)
        return _stepped(_Steps(v, _by_head(q, v), _by_head(k, v), decay), state)
    return _delta(call, attrs, (v, *others), state) if attrs.kind == DELTA else _selective(call, (v, *others), state)


def _stepped(s: _Steps, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run all steps; a decay is one number a head, or one a row of the state."""
    b, length, h, p = s.v.shape
    held = s.v.new_zeros(b, h, s.k.shape[3], p) if state is None else state
    made: list[Tensor] = []
    for t in range(length):
        held = held * s.decay[:, t].unsqueeze(-1)
        v = s.v[:, t]
        if s.beta is not None:
            v = (v - torch.einsum("bhnp,bhn->bhp", held, s.k[:, t])) * s.beta[:, t].unsqueeze(-1)
        held = held + torch.einsum("bhn,bhp->bhnp", s.k[:, t], v)
        made.append(torch.einsum("bhnp,bhn->bhp", held, s.q[:, t]))
    return torch.stack(made, dim=1), held


def _by_head(t: Tensor, v: Tensor) -> Tensor:
    """One row a head of q or k [b, L, groups, n], of which each group of heads shares one."""
    return t.repeat_interleave(v.shape[2] // t.shape[2], dim=2)


def _selective(call: RankCall, operands: Sequence[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mamba and Mamba-2: v, C, B, dt, z where given, A, then D and the bias of dt where given.

    S = exp(dt A) S + dt B v, y = C S + D v, times silu(z); dt is softplus(dt + bias), unless recorded otherwise,
    within its limits.
    """
    v, c, b, dt, *rest = operands
    gates, parameters = [t for t in rest if t.dim() > 2], [t for t in rest if t.dim() <= 2]
    a, *own = parameters
    skip, bias = (own[0] if own else None), (own[1] if len(own) > 1 else None)
    step = dt if bias is None else dt + bias
    step = F.softplus(step) if number(call, "softplus", 1) else step
    # Time steps of at least so much, and at most so much where that is not negative.
    least = number(call, "least", 0.0)
    most = number(call, "most", -1.0)
    step = step.clamp(min=least or None, max=most if most >= 0 else None) if least or most >= 0 else step
    decay = torch.exp(step.unsqueeze(-1) * (a if a.dim() == 2 else a.unsqueeze(-1)))
    y, held = _stepped(_Steps(v * step.unsqueeze(-1), _by_head(c, v), _by_head(b, v), decay), state)
    y = y if skip is None else y + skip.reshape(1, 1, -1, 1) * v
    return (y * F.silu(gates[0].reshape(y.shape)) if gates else y), held


def _delta(call: RankCall, attrs: ScanAttrs, operands: Sequence[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gated delta rule over v, q, k, log decay [b, L, h] or [b, L, h, n], beta [b, L, h].

    Kernels that step normalise queries and keys themselves.
    """
    v, q, k, g, beta = operands
    if number(call, "l2", attrs.chunk == 0):
        q, k = (t * torch.rsqrt(t.square().sum(-1, keepdim=True) + _L2_EPS) for t in (q, k))
    q = _by_head(q, v) * float(q.shape[3]) ** -0.5
    decay = torch.exp(g if g.dim() == 4 else g.unsqueeze(-1))
    return _stepped(_Steps(v, q, _by_head(k, v), decay, beta), state)


def _gated(v: Tensor, others: Sequence[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
    """An elementwise recurrence h = a h + v over v [b, L, c, 1] and a [b, L, c]."""
    (decay,) = others
    held = v.new_zeros(v.shape[0], v.shape[2], v.shape[3]) if state is None else state[:, :, 0]
    made: list[Tensor] = []
    for t in range(v.shape[1]):
        held = held * decay[:, t].unsqueeze(-1) + v[:, t]
        made.append(held)
    return torch.stack(made, dim=1), held.unsqueeze(2)


def _rwkv(v: Tensor, others: Sequence[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
    """RWKV-4: a weighted average of the past, over key [b, L, c], decay [c] and the weight of the token itself [c]."""
    key, decay, first = others
    if state is not None:
        raise NotComputedError("RWKV from a state in the cache")
    num = den = v.new_zeros(v.shape[0], v.shape[2])
    made: list[Tensor] = []
    kept = torch.exp(-torch.exp(decay))
    for t in range(v.shape[1]):
        now, new = torch.exp(key[:, t] + first), torch.exp(key[:, t])
        made.append((num + now * v[:, t, :, 0]) / (den + now))
        num, den = num * kept + new * v[:, t, :, 0], den * kept + new
    return torch.stack(made, dim=1).unsqueeze(-1), torch.stack((num, den, torch.zeros_like(num)), dim=2).unsqueeze(-1)


def _xlstm(v: Tensor, others: Sequence[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The matrix memory of xLSTM over q, k [b, L, h, n] and the logits of both gates [b, L, h].

    Numerator and normaliser are kept relative to the running maximum m of the gates' exponents.
    """
    q, k, i, f = others
    if state is not None:
        raise NotComputedError("xLSTM from a state in the cache")
    held = v.new_zeros(*v.shape[:1], v.shape[2], k.shape[3], v.shape[3])
    norm, m = v.new_zeros(held.shape[:3]), v.new_zeros(held.shape[:2])
    made: list[Tensor] = []
    for t in range(v.shape[1]):
        log_f = F.logsigmoid(f[:, t])
        top = torch.maximum(log_f + m, i[:, t])
        keep, add = torch.exp(log_f + m - top).unsqueeze(-1), torch.exp(i[:, t] - top).unsqueeze(-1)
        held = held * keep.unsqueeze(-1) + (add * k[:, t]).unsqueeze(-1) * v[:, t].unsqueeze(2)
        norm, m = norm * keep + add * k[:, t], top
        query = q[:, t] * float(k.shape[3]) ** -0.5
        size = torch.maximum((norm * query).sum(-1).abs(), torch.exp(-m)) + 1e-6
        made.append(torch.einsum("bhnp,bhn->bhp", held, query) / size.unsqueeze(-1))
    return torch.stack(made, dim=1), held


def keep_state(call: RankCall) -> tuple[Tensor, ...]:
    """A state stays as it is."""
    return call.inputs[:1]


REFERENCES: Mapping[str, Reference] = {
    "scan": scan,
    "scan_bwd": scan_bwd,
    KEEP_STATE: keep_state,
    "conv": conv,
    "conv_bwd": conv_bwd,
    "quantise": same,
    "offload": same,
    "fetch": same,
    "optimizer_step": parameters,
    "host_optimizer_step": parameters,
}
