"""Norms, rotary embedding and softmax."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ....ir.ops.tensors.normalize import DimAttrs, NormAttrs
from ...semantic.constants import STYLES, turned
from ..call import Call, NotComputedError, Reference
from ..differentiate import gradients
from ..models.constants import attrs_of, given, number, operator, word

_EPS = {"rms": 1e-6, "layer": 1e-5}  # defaults of our operator and of torch's


def norm(call: Call) -> tuple[Tensor, ...]:
    """The normalised rows, then as many statistics of rows as the call makes: (mean, 1 / deviation) or 1 / rms."""
    x, *rest = call.inputs
    first = given(call, "weight", 1 if rest else None) if _is_layer(call) else (1 if rest else None)
    weight = rest[0] if first is not None else None
    bias = rest[-1] if len(rest) > (weight is not None) else None
    y, mean, inverse = _normed(call, x, weight, bias)
    return ((y, mean, inverse) if _is_layer(call) else (y, inverse))[: len(call.dims)]


def norm_bwd(call: Call) -> tuple[Tensor, ...]:
    """Gradients of x, weight and bias, those that the call makes, of (dy, x, statistics, weight)."""
    grad, x, *rest = call.inputs
    weight = next((t for t in rest[1:] if t.dim() == 1), None)
    tensors = (x,) if weight is None else (x, weight)
    found = gradients(lambda t: _normed(call, t[0], t[1] if len(t) > 1 else None, None)[0], tensors, grad)
    bias = grad.reshape(-1, grad.shape[-1]).sum(0)
    return (*found, bias)[: len(call.dims)]


def _is_layer(call: Call) -> bool:
    return attrs_of(call, NormAttrs).kind == "layer"


def _normed(call: Call, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows over their length: the deviation, the root mean square, or (L2) the Euclidean one."""
    layer = _is_layer(call)
    mean = x.mean(-1, keepdim=True)
    centred = x - mean if layer else x
    square = centred.square()
    size = square.sum(-1, keepdim=True) if "l2_norm" in operator(call) else square.mean(-1, keepdim=True)
    inverse = torch.rsqrt(size + number(call, "eps", _EPS["layer" if layer else "rms"]))
    y = centred * inverse
    y = y if weight is None else y * (weight + number(call, "offset", 0.0))
    return y if bias is None else y + bias, mean, inverse


def rope(call: Call) -> tuple[Tensor, ...]:
    """Rotated x [.., d] by tables that broadcast to it."""
    x, cos, sin = call.inputs
    return (_rotated(call, x, cos, sin),)


def rope_bwd(call: Call) -> tuple[Tensor, ...]:
    """The adjoint of the rotation; that is linear, so that its gradient is the same anywhere."""
    grad, cos, sin = call.inputs
    return gradients(lambda t: _rotated(call, t[0], cos, sin), (torch.zeros_like(grad),), grad)


def _rotated(call: Call, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first entries of x, as many as the tables have (twice as many in narrow styles), by pairs of a style."""
    style = word(call, "style", "half")
    if style not in STYLES:
        raise NotComputedError(f"rotary embedding in the style '{style}'")
    return turned(x, cos, sin, style)


def softmax(call: Call) -> tuple[Tensor, ...]:
    """Softmax along a dim, or its logarithm where the call says so."""
    x, dim = call.inputs[0], attrs_of(call, DimAttrs).dim
    return (torch.log_softmax(x, dim) if "log_softmax" in operator(call) else torch.softmax(x, dim),)


def softmax_bwd(call: Call) -> tuple[Tensor, ...]:
    """Gradient y (dy - sum(dy y)), or of a logarithm dy - exp(y) sum(dy), of (dy, y)."""
    grad, y = call.inputs
    dim = attrs_of(call, DimAttrs).dim
    if "log_softmax" in operator(call):
        return (grad - y.exp() * grad.sum(dim, keepdim=True),)
    return (y * (grad - (grad * y).sum(dim, keepdim=True)),)


REFERENCES: Mapping[str, Reference] = {
    "norm": norm, "norm_bwd": norm_bwd, "rope": rope, "rope_bwd": rope_bwd, "softmax": softmax,
    "softmax_bwd": softmax_bwd,
}  # fmt: skip
