"""Griffin's recurrent block (arXiv 2402.19427): a short convolution and an RG-LRU, whose recurrence is one scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeGuard

from torch import Tensor, nn

from ...record.adapter import swapped
from ...semantic.scan import causal_conv, scan
from .memory import Memory

_OWN = ("linear_x", "linear_y", "linear_out", "conv_1d", "rg_lru", "act_fn")


class _Unit(Protocol):
    recurrent_states: Tensor | None

    def __call__(self, x: Tensor, position_ids: Tensor) -> Tensor: ...


class _Block(Protocol):
    conv_1d: nn.Conv1d
    rg_lru: _Unit

    def linear_x(self, x: Tensor) -> Tensor: ...

    def linear_y(self, x: Tensor) -> Tensor: ...

    def linear_out(self, x: Tensor) -> Tensor: ...

    def act_fn(self, x: Tensor) -> Tensor: ...


def methods(part: nn.Module, memory: Memory) -> Mapping[str, Callable[..., object]]:
    """Return the forward of a recurrent block, or the recurrence of its unit; nothing for another module."""
    if _is_block(part):
        return {"forward": _forward(part, memory)}
    return {"_rnn_scan": _recurrence(memory)} if hasattr(part, "_rnn_scan") else {}


def _is_block(part: object) -> TypeGuard[_Block]:
    return all(hasattr(part, name) for name in _OWN)


def _forward(module: _Block, memory: Memory) -> Callable[..., tuple[Tensor, None]]:
    """The block with its states in a cache, not on the module."""

    def forward(input_states: Tensor, position_ids: Tensor, **_options: object) -> tuple[Tensor, None]:
        gate = module.act_fn(module.linear_y(input_states))
        conv, kept, before = module.conv_1d, module.conv_1d.kernel_size[0] - 1, memory.tail()
        x = module.linear_x(input_states).transpose(1, 2)
        out, last = causal_conv(x, conv.weight, conv.bias, before, "", 0 if before is None else kept)
        memory.keep_tail(x[..., -kept:].clone() if before is None else last)
        with swapped(module.rg_lru, "recurrent_states", None):
            mixed = module.rg_lru(out.transpose(1, 2), position_ids)
        return module.linear_out(mixed * gate), None

    return forward


def _recurrence(memory: Memory) -> Callable[..., tuple[Tensor, None]]:
    """h_t = a_t h_(t-1) + x_t over x and a [b, L, channels], element by element; the state is [b, channels, 1, 1]."""

    def rnn_scan(
        hidden_states: Tensor, recurrent_gate: Tensor, reset: Tensor, **_options: object
    ) -> tuple[Tensor, None]:
        y, state = scan(hidden_states.unsqueeze(-1), [recurrent_gate * ~reset], memory.state(), "gated", 0, 1)
        memory.keep(state)
        return y.squeeze(-1), None

    return rnn_scan


__all__ = ["methods"]
