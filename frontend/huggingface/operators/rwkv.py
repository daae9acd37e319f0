"""RWKV-4 (arXiv 2305.13048): token shifts, and the weighted average of the past as one scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn

from ...semantic.scan import scan
from .memory import Memory

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


def methods(part: nn.Module, memory: Memory) -> Mapping[str, Callable[..., object]]:
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


def _time_mix(module: _TimeMix, memory: Memory) -> Callable[..., tuple[Tensor, None]]:
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


def _channel_mix(module: _Mix, memory: Memory) -> Callable[..., tuple[Tensor, None]]:
    def forward(hidden: Tensor, **_options: object) -> tuple[Tensor, None]:
        before = memory.before(hidden, index=1)
        key = torch.square(torch.relu(module.key(_mixed(hidden, before, module.time_mix_key))))
        receptance = torch.sigmoid(module.receptance(_mixed(hidden, before, module.time_mix_receptance)))
        return receptance * module.value(key), None

    return forward


__all__ = ["methods"]
