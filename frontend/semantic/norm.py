"""L2 normalisation of rows as one node each way; what delta-rule layers do to queries and keys before the scan."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, fx

from ...ir.ops.tensors.normalize import NormAttrs
from ..aten.fx_import import Handler, Importer
from .semantic import NAMESPACE, custom_op


@custom_op(f"{NAMESPACE}::l2_norm")
def l2_norm(x: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Rows of x [.., d] over their Euclidean length, and the reciprocal length of each row (fp32)."""
    raise NotImplementedError("slipstick::l2_norm describes a computation and runs on fake tensors only")


@l2_norm.register_fake
def _(x: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)


@custom_op(f"{NAMESPACE}::l2_norm_bwd")
def l2_norm_bwd(grad: Tensor, x: Tensor, inverse: Tensor, eps: float = 1e-6) -> Tensor:
    """Gradient of x."""
    raise NotImplementedError("slipstick::l2_norm_bwd describes a computation and runs on fake tensors only")


@l2_norm_bwd.register_fake
def _(grad: Tensor, x: Tensor, inverse: Tensor, eps: float = 1e-6) -> Tensor:
    return x.new_empty(x.shape)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(inputs[0], output[1])
    ctx.eps = inputs[1]


def _backward(ctx, grad, _grad_inverse):  # type: ignore[no-untyped-def]
    x, inverse = ctx.saved_tensors
    return l2_norm_bwd(grad, x, inverse, ctx.eps), None


l2_norm.register_autograd(_backward, setup_context=_setup)


def _norm(im: Importer, node: fx.Node) -> None:
    """An RMS norm without a weight: the same work up to one factor a row."""
    im.emit(node, "norm_bwd" if "bwd" in str(node.target) else "norm", im.inputs(node), NormAttrs("rms"))


HANDLERS: Mapping[str, Handler] = {f"{NAMESPACE}.l2_norm": _norm, f"{NAMESPACE}.l2_norm_bwd": _norm}
