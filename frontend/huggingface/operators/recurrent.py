"""RWKV-4 (arXiv 2305.13048) and Griffin's block (arXiv 2402.19427): their recurrences as scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn

from ...record.adapter import swapped
from ...semantic.scan import causal_conv, scan
from .cache import CacheSlot

# Sums of a channel that stay between tokens: numerator, denominator and the largest exponent so far.
SUMS = 3
_MIXED = ("time_mix_key", "time_mix_receptance", "key", "value", "receptance")


class _Mix(Protocol):
    time_mix_key: Tensor
    time_mix_receptance: Tensor

    def key(self, x: Tensor) -> Tensor: ...

    def value(self, x: Tensor) -> Tensor: ...

    def receptance(self, x: Tensor) -> Tensor: ...


class _TimeMix(_Mix, Protocol):
    time_mix_value: Tensor
    time_decay: Tensor
    time_first: Tensor

    def output(self, x: Tensor) -> Tensor: ...


def rwkv_methods(part: nn.Module, memory: CacheSlot) -> Mapping[str, Callable[..., object]]:
    """Return the forward of a time mix or a channel mix; nothing for another module."""
    if _is_time_mix(part):
        return {"forward": _time_mix(part, memory)}
    if _is_channel_mix(part):
        return {"forward": _channel_mix(part, memory)}
    # The weights are scaled in place before inference, which is no part of running the model.
    return {"_rescale_layers": _nothing} if hasattr(part, "layers_are_rescaled") else {}


def _nothing() -> None:
    """Stand in for a method that is not run."""


def _is_time_mix(part: object) -> TypeGuard[_TimeMix]:
    return all(hasattr(part, name) for name in (*_MIXED, "time_mix_value", "time_decay", "time_first", "output"))


def _is_channel_mix(part: object) -> TypeGuard[_Mix]:
    return all(hasattr(part, name) for name in _MIXED)


def _mixed(x: Tensor, before: Tensor, share: Tensor) -> Tensor:
    return x * share + before * (1 - share)


def _time_mix(module: _TimeMix, memory: CacheSlot) -> Callable[..., tuple[Tensor, None]]:
    def forward(hidden: Tensor, **_options: object) -> tuple[Tensor, None]:
        before = memory.before(hidden)
        key = module.key(_mixed(hidden, before, module.time_mix_key))
        value = module.value(_mixed(hidden, before, module.time_mix_value))
        receptance = torch.sigmoid(module.receptance(_mixed(hidden, before, module.time_mix_receptance)))
        parameters = [key, module.time_decay, module.time_first]
        y, state = scan(value.unsqueeze(-1), parameters, memory.state(), "linear", 0, SUMS)
        memory.keep(state)
        return module.output(receptance * y.squeeze(-1)), None

    return forward


def _channel_mix(module: _Mix, memory: CacheSlot) -> Callable[..., tuple[Tensor, None]]:
    def forward(hidden: Tensor, **_options: object) -> tuple[Tensor, None]:
        before = memory.before(hidden, index=1)
        key = torch.square(torch.relu(module.key(_mixed(hidden, before, module.time_mix_key))))
        receptance = torch.sigmoid(module.receptance(_mixed(hidden, before, module.time_mix_receptance)))
        return receptance * module.value(key), None

    return forward


_OF_GRIFFIN = ("linear_x", "linear_y", "linear_out", "conv_1d", "rg_lru", "act_fn")


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


def griffin_methods(part: nn.Module, memory: CacheSlot) -> Mapping[str, Callable[..., object]]:
    """Return the forward of a recurrent block, or the recurrence of its unit; nothing for another module."""
    if _is_block(part):
        return {"forward": _griffin_forward(part, memory)}
    return {"_rnn_scan": _recurrence(memory)} if hasattr(part, "_rnn_scan") else {}


def _is_block(part: object) -> TypeGuard[_Block]:
    return all(hasattr(part, name) for name in _OF_GRIFFIN)


def _griffin_forward(module: _Block, memory: CacheSlot) -> Callable[..., tuple[Tensor, None]]:
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


def _recurrence(memory: CacheSlot) -> Callable[..., tuple[Tensor, None]]:
    """h_t = a_t h_(t-1) + x_t over x and a [b, L, channels], element by element; the state is [b, channels, 1, 1]."""

    def rnn_scan(
        hidden_states: Tensor, recurrent_gate: Tensor, reset: Tensor, **_options: object
    ) -> tuple[Tensor, None]:
        y, state = scan(hidden_states.unsqueeze(-1), [recurrent_gate * ~reset], memory.state(), "gated", 0, 1)
        memory.keep(state)
        return y.squeeze(-1), None

    return rnn_scan
