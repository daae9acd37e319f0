"""A short causal convolution whose taps each token makes for itself: a chain of shifted products, no windows copied."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, TypeGuard

from torch import Tensor, nn

from .memory import Memory, StateCache

_OWN = ("static_weight", "weight_proj", "conv_kernel_size", "conv_idx", "num_heads")


class _Dynamic(Protocol):
    static_weight: Tensor
    conv_kernel_size: int
    conv_idx: int
    num_heads: int

    def weight_proj(self, x: Tensor) -> Tensor: ...


def methods(part: nn.Module, memory: Memory) -> Mapping[str, Callable[..., object]]:
    """Return the forward of such a convolution; nothing for another module."""
    return {"forward": _forward(part, memory)} if _is_dynamic(part) else {}


def _is_dynamic(part: object) -> TypeGuard[_Dynamic]:
    return all(hasattr(part, name) for name in _OWN)


def _forward(module: _Dynamic, memory: Memory) -> Callable[..., Tensor]:
    taps, heads = module.conv_kernel_size, module.num_heads

    def forward(
        hidden_states: Tensor, dynamic_input: Tensor, past_key_values: StateCache | None = None, **_options: object
    ) -> Tensor:
        b, length, width = hidden_states.shape
        own = Memory(past_key_values, memory.layer)
        per_token = module.weight_proj(dynamic_input).float().view(b, length, heads, 1, taps)
        static = module.static_weight.float().view(taps, heads, width // heads)
        x = hidden_states.float()
        past = own.window(x, taps - 1, module.conv_idx).view(b, -1, heads, width // heads)
        out = x.view(b, length, heads, width // heads)
        for lag in range(taps):
            late = past[:, taps - 1 - lag : taps - 1 - lag + length]
            out = out + late * (static[lag] + per_token[..., lag])
        return (out.reshape(b, length, width) / math.sqrt(2 * taps + 1)).to(hidden_states.dtype)

    return forward


__all__ = ["methods"]
