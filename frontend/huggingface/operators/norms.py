"""Norms behind a recurrence, which fused kernels run in one pass: with a gate, or over each head of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...semantic import semantic
from ...semantic.constants import norm_constants
from .memory import Memory


def methods(part: nn.Module, memory: Memory) -> Mapping[str, Callable[..., object]]:
    """Return the forward of a gated norm or the core of a norm over heads; nothing for another module."""
    del memory
    weight, gate = getattr(part, "weight", None), getattr(part, "activation", None)
    if type(part).__name__.endswith("RMSNormGated") and isinstance(weight, Tensor) and isinstance(gate, str):
        return {"forward": _gated(weight, gate, norm_constants(part))}
    eps = getattr(part, "eps", None)
    return {"_layer_normalize": _centred(eps)} if hasattr(part, "_layer_normalize") and isinstance(eps, float) else {}


def _gated(weight: Tensor, activation: str, constants: tuple[float, float]) -> Callable[[Tensor, Tensor], Tensor]:
    """norm(x) * activation(gate), as flash-linear-attention's `FusedRMSNormGated`."""
    from transformers.activations import ACT2FN

    act: Callable[[Tensor], Tensor] = ACT2FN[activation]

    def forward(hidden_states: Tensor, gate: Tensor) -> Tensor:
        return semantic.rms_norm(hidden_states, weight, *constants)[0] * act(gate)

    return forward


def _centred(eps: float) -> Callable[[Tensor], Tensor]:
    def layer_normalize(x: Tensor) -> Tensor:
        return F.layer_norm(x, [x.shape[-1]], eps=eps)

    return layer_normalize


__all__ = ["methods"]
