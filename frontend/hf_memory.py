"""What one layer remembers between tokens: a recurrent state, and the last tokens that a shift or convolution reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class StateCache(Protocol):
    """What we use of the caches of transformers."""

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None: ...

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None: ...

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, *, conv_kernel_size: int
    ) -> Tensor: ...

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Memory:
    """A layer's place in a cache; without a cache nothing is remembered."""

    cache: StateCache | None
    layer: int

    def state(self, index: int = 0) -> Tensor | None:
        """Return the recurrent state before this call; None at the beginning of a sequence."""
        return None if self.cache is None else self.cache.get_recurrent_state(self.layer, index)

    def keep(self, state: Tensor, index: int = 0) -> None:
        """Remember the recurrent state behind this call."""
        if self.cache is not None:
            self.cache.update_recurrent_state(state, self.layer, index)

    def tail(self, index: int = 0) -> Tensor | None:
        """Return the last inputs before this call [b, c, kept]; None at the beginning of a sequence."""
        return None if self.cache is None else self.cache.get_conv_state(self.layer, index)

    def keep_tail(self, tail: Tensor, index: int = 0) -> None:
        """Remember the last inputs of this call."""
        if self.cache is not None:
            self.cache.update_conv_state(tail, self.layer, index, conv_kernel_size=tail.shape[-1])

    def before(self, x: Tensor, index: int = 0) -> Tensor:
        """Return x [b, L, d] one token late: each token gets the one before it, the first the one remembered."""
        last = None if self.cache is None else self.cache.get_conv_state(self.layer, index)
        rows = x.transpose(1, 2)
        if self.cache is not None:
            self.cache.update_conv_state(rows, self.layer, index, conv_kernel_size=1)
        if x.shape[1] == 1 and last is not None:
            return last.transpose(1, 2)
        first = x.new_zeros(x.shape[0], 1, x.shape[2]) if last is None else last.transpose(1, 2)
        return torch.cat((first, x[:, :-1]), dim=1)


__all__ = ["Memory", "StateCache"]
