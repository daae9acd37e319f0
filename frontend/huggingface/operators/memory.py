"""What one layer remembers between tokens: a recurrent state, and the last tokens that a shift or convolution reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...semantic.scan import keep_state


class StateCache(Protocol):
    """What we use of the caches of transformers."""

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Last inputs of a layer; None before there are any."""

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """State of a layer; None before there is one."""

    def update_conv_state(self, conv_states: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor:
        """Take new inputs in; return those before and these."""
        ...

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor:
        """Take a new state in and return it."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """A layer's place in a cache; without a cache nothing is remembered."""

    cache: StateCache | None
    layer: int

    def state(self) -> Tensor | None:
        """Return the recurrent state before this call; None at the beginning of a sequence."""
        return None if self.cache is None else self.cache.get_recurrent_state(self.layer)

    def keep(self, state: Tensor) -> None:
        """Remember the recurrent state behind this call."""
        if self.cache is not None:
            self.cache.update_recurrent_state(state, self.layer)

    def tail(self, index: int = 0) -> Tensor | None:
        """Return the last inputs before this call [b, c, kept]; None at the beginning of a sequence."""
        return None if self.cache is None else self.cache.get_conv_state(self.layer, index)

    def keep_tail(self, tail: Tensor, index: int = 0) -> None:
        """Remember the last inputs of this call, in the place of those before it."""
        before = self.tail(index)
        if before is not None:
            keep_state(tail, before)
        elif self.cache is not None:
            self.cache.update_conv_state(tail, self.layer, index)

    def window(self, x: Tensor, kept: int, index: int = 0) -> Tensor:
        """Return x [b, L, d] with the `kept` tokens before it, which are zeros at the beginning: [b, kept + L, d]."""
        before = self.tail(index)
        past = x.new_zeros(x.shape[0], kept, x.shape[2]) if before is None else before.transpose(1, 2)
        seen = torch.cat((past, x), dim=1)
        if self.cache is not None:
            self.keep_tail(seen[:, -kept:].transpose(1, 2).clone(), index)
        return seen

    def before(self, x: Tensor, index: int = 0) -> Tensor:
        """Return x [b, L, d] one token late: each token gets the one before it, the first the one remembered."""
        last = self.tail(index)
        if self.cache is not None:
            self.keep_tail(x[:, -1:].transpose(1, 2).clone(), index)
        first = x.new_zeros(x.shape[0], 1, x.shape[2]) if last is None else last.transpose(1, 2)
        return first if x.shape[1] == 1 else torch.cat((first, x[:, :-1]), dim=1)


__all__ = ["Memory", "StateCache"]
