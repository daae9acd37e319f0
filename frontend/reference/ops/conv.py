"""Convolutions, and what changes a tensor's place or precision but not its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ....ir.ops import Trait, has
from ....ir.ops.tensors.conv import ConvAttrs
from ..call import Call, NotComputedError, Reference
from ..differentiate import gradients
from ..models.constants import attrs_of, number, share


def conv(call: Call) -> tuple[Tensor, ...]:
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


def conv_bwd(call: Call) -> tuple[Tensor, ...]:
    """Those of the gradients of x, weight and bias that the call makes, told by their dims."""
    attrs = attrs_of(call, ConvAttrs)
    grad, x, weight, *bias = call.inputs
    found = gradients(lambda t: _convolved(call, attrs, t, None), (x, weight, *bias), grad)
    sums = grad.flatten(2).sum((0, 2))
    made = {x.shape: found[0], weight.shape: found[1]}
    return tuple((found[2] if bias else sums) if len(d) == 1 else made[torch.Size(d)] for d in call.dims)


def _convolved(call: Call, attrs: ConvAttrs, tensors: Sequence[Tensor], state: Tensor | None) -> Tensor:
    x, weight, *bias = tensors
    padding: tuple[int, ...] = attrs.padding
    if attrs.causal:
        if share(call, 1 if has(call.node, Trait.BACKWARD) else 0, 2)[1] > 1:
            raise NotComputedError("a causal convolution over a split sequence, which reads positions of a neighbour")
        x, padding = _with_past(x, weight.shape[2], state), (0,)
    groups = int(number(call, "groups", 1)) if attrs.transposed else x.shape[1] // weight.shape[1]
    y = torch.convolution(
        x, weight, bias[0] if bias else None, attrs.stride, padding, attrs.dilation, attrs.transposed,
        (0,) * len(padding), groups,
    )  # fmt: skip
    if attrs.activation not in ("", "silu"):
        raise NotComputedError(f"a convolution with the activation '{attrs.activation}'")
    return F.silu(y) if attrs.activation else y


def _with_past(x: Tensor, taps: int, state: Tensor | None) -> Tensor:
    """The positions that the first results read beside their own: those of a state, else zeros."""
    past = x.new_zeros(*x.shape[:2], taps - 1)
    if state is not None:
        past = torch.cat((past, state), dim=2)[..., state.shape[2] :]
    return torch.cat((past, x), dim=2)


def same(call: Call) -> tuple[Tensor, ...]:
    """The tensors themselves: precision, host and device are no part of what is verified."""
    return tuple(call.inputs[i % len(call.inputs)] for i in range(len(call.dims)))


def parameters(call: Call) -> tuple[Tensor, ...]:
    """An update writes parameters; whose gradients are right is checked before it."""
    return call.inputs[: len(call.dims)]


REFERENCES: Mapping[str, Reference] = {
    "conv": conv, "conv_bwd": conv_bwd, "quantise": same, "offload": same, "fetch": same, "optimizer_step": parameters,
    "host_optimizer_step": parameters,
}  # fmt: skip
