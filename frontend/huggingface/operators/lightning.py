"""Lightning attention: linear attention with one fixed decay a head (arXiv 2401.04658), as one scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn

from ...semantic.scan import scan
from .memory import Memory, StateCache

_OWN = ("slope_rate", "qkv_proj", "output_gate", "out_proj", "norm", "act_fn", "block_size", "head_dim")


class _Lightning(Protocol):
    num_attention_heads: int
    head_dim: int
    block_size: int
    layer_idx: int
    slope_rate: Tensor

    def act_fn(self, x: Tensor) -> Tensor: ...

    def qkv_proj(self, x: Tensor) -> Tensor: ...

    def output_gate(self, x: Tensor) -> Tensor: ...

    def out_proj(self, x: Tensor) -> Tensor: ...

    def norm(self, x: Tensor) -> Tensor: ...


def methods(part: nn.Module, memory: Memory) -> Mapping[str, Callable[..., object]]:
    """Return the forward of a lightning attention; nothing for another module."""
    return {"forward": _forward(part, memory)} if _is_lightning(part) else {}


def _is_lightning(part: object) -> TypeGuard[_Lightning]:
    return all(hasattr(part, name) for name in _OWN)


def _forward(module: _Lightning, memory: Memory) -> Callable[..., tuple[Tensor, None]]:
    heads, dim = module.num_attention_heads, module.head_dim

    def forward(
        hidden_states: Tensor, past_key_values: StateCache | None = None, **_options: object
    ) -> tuple[Tensor, None]:
        b, length, _ = hidden_states.shape
        own = Memory(past_key_values, memory.layer)
        qkv = module.act_fn(module.qkv_proj(hidden_states)).reshape(b, length, heads, 3 * dim)
        q, k, v = torch.split(qkv, dim, dim=3)
        before = own.state()
        chunk = module.block_size if before is None else 0
        y, state = scan(v, [q, k, module.slope_rate.view(heads)], before, "linear", chunk, dim)
        own.keep(state)
        normed = module.norm(y.reshape(b, length, heads * dim))
        return module.out_proj(torch.sigmoid(module.output_gate(hidden_states)) * normed), None

    return forward


__all__ = ["methods"]
