"""The cache that is handed to a model of transformers, and what one layer remembers between tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Protocol

import torch
from torch import Tensor

from ....ir.records import dataclass
from ...semantic import semantic
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
class CacheSlot:
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


@dataclass(frozen=True, slots=True)
class Past:
    """What one layer has of the tokens before: nothing, keys and values, states by number, or all of these.

    Attributes:
        keys: [b, g, t, d].
        values: [b, g, t, d_v].
        index_keys: of the indexer of sparse attention, [b, 1, t, d].
        conv_states: the last inputs of short convolutions, [b, c, kept].
        states: of scans, [b, h, n, p].
        entries: that stand for windows of tokens (DeepSeek-V4), by the name of what compresses, [b, 1, windows, d].
        buffers: tokens of a window that is not whole, [b, tokens, c].
        overlaps: of the last whole window, what the next one reads, [b, tokens, d].
        is_complete: keys and values are of an encoder: they are read, and nothing is added.
    """

    keys: Tensor | None = None
    values: Tensor | None = None
    conv_states: Mapping[int, Tensor] = field(default_factory=dict)
    states: Mapping[int, Tensor] = field(default_factory=dict)
    index_keys: Tensor | None = None
    entries: Mapping[str, Tensor] = field(default_factory=dict)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    overlaps: Mapping[str, Tensor] = field(default_factory=dict)
    is_complete: bool = False

    def named(self, layer: int) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors with the names of inputs: `cache.3.keys`, `cache.3.state`, `cache.3.state.1`."""
        for name, tensor in (("keys", self.keys), ("values", self.values), ("index_keys", self.index_keys)):
            if tensor is not None:
                yield f"cache.{layer}.{name}", tensor
        for name, tensors in (("conv_state", self.conv_states), ("state", self.states)):
            yield from ((f"cache.{layer}.{name}{f'.{i}' if i else ''}", t) for i, t in tensors.items())
        for kind, by_name in (("entries", self.entries), ("buffer", self.buffers), ("overlap", self.overlaps)):
            yield from ((f"cache.{layer}.{kind}.{name}", t) for name, t in by_name.items())

    @property
    def length(self) -> int:
        """Tokens that keys are kept of."""
        return 0 if self.keys is None else self.keys.shape[2]


NOTHING = Past()


class _GivenLayer:
    """A layer whose past is given (or absent, in prefill): what stands in front of transformers' own methods."""

    def __init__(self, past: Past = NOTHING) -> None:
        super().__init__()
        self.past = past
        self.keys: Tensor | None = past.keys
        self.values: Tensor | None = past.values
        self.index_keys: Tensor | None = None
        self.indexer_position_ids = None if past.keys is None else _places(past.keys)
        self.compress_rate = 1
        self.entries: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        self.overlaps: dict[str, Tensor] = {}
        self.is_initialized = past.keys is not None
        self.conv_states: dict[int, Tensor | None] = dict(past.conv_states)
        self.recurrent_states: dict[int, Tensor | None] = dict(past.states)
        held = {*self.conv_states, *self.recurrent_states}
        self.has_previous_state = defaultdict(bool, dict.fromkeys(held, True))

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **options: object
    ) -> tuple[Tensor, Tensor]:
        self.keys = semantic.kv_append(self.past.keys, key_states)
        self.values = semantic.kv_append(self.past.values, value_states)
        return self.keys, self.values

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        self.index_keys = semantic.kv_append(self.past.index_keys, indexer_key_states.unsqueeze(1))
        return self.index_keys.squeeze(1)

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **options: object
    ) -> Tensor:
        past = self.past.conv_states.get(state_idx)
        seen = conv_states if past is None else torch.cat((past, conv_states), dim=-1)
        last = _last(seen, seen.shape[-1] if conv_kernel_size is None else conv_kernel_size)
        self.conv_states[state_idx] = keep_state(last.clone(), past)
        return seen

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **options: object) -> Tensor:
        kept = keep_state(recurrent_states, self.past.states.get(state_idx))
        self.recurrent_states[state_idx] = kept
        return kept

    def store_compression_weights(self, name: str, kv: Tensor, gate: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return the tokens of whole windows, and the position of the first; in decode a token closes a window."""
        whole: list[Tensor] = []
        for kind, new in (("kv", kv), ("gate", gate)):
            past = self.past.buffers.get(f"{name}.{kind}")
            seen = new if past is None else torch.cat((past, new), dim=1)
            whole.append(seen[:, : seen.shape[1] // self.compress_rate * self.compress_rate])
            self.buffers[f"{name}.{kind}"] = new
        return whole[0], whole[1], self.past.length // self.compress_rate * self.compress_rate

    def update_compressor_states(self, name: str, compressed: Tensor) -> Tensor:
        self.entries[name] = semantic.kv_append(self.past.entries.get(name), compressed.unsqueeze(1))
        return self.entries[name].squeeze(1)

    def update_overlap_state(
        self, name: str, chunk_kv: Tensor, chunk_gate: Tensor, head_dim: int
    ) -> tuple[Tensor | None, Tensor | None]:
        for kind, chunk in (("kv", chunk_kv), ("gate", chunk_gate)):
            last, past = chunk[:, -1, :, :head_dim].clone(), self.past.overlaps.get(f"{name}.{kind}")
            self.overlaps[f"{name}.{kind}"] = keep_state(last, past)
        return self.past.overlaps.get(f"{name}.kv"), self.past.overlaps.get(f"{name}.gate")

    def get_seq_length(self) -> int:
        return self.past.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0


def cache_class() -> type:
    """Return the cache to hand to a model: explicit inputs, one append or state a layer, nothing copied.

    It takes one `Past` a layer. Every layer can hold all kinds of states, as which it holds is seen when it is asked.
    """
    from transformers.cache_utils import Cache, LinearAttentionAndFullAttentionLayer

    layer: type = type("Layer", (_GivenLayer, LinearAttentionAndFullAttentionLayer), {})

    class GivenCache(Cache):
        """A cache made of such layers, by layer index; layers without keys are as long as the others.

        It grows by those that a model asks for beyond them.
        """

        def __init__(self, pasts: list[Past]) -> None:
            super().__init__(layer_class_to_replicate=layer)
            self.layers = [layer(p) for p in pasts]
            self.length = next((p.length for p in pasts if p.keys is not None), 0)

        def get_seq_length(self, layer_idx: int = 0) -> int:
            return self.length

        def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
            return self.length + query_length, 0

    return GivenCache


def _places(keys: Tensor) -> Tensor:
    """Positions [3, b, t] of the tokens before, as models keep them whose indexers rotate all keys anew."""
    return torch.arange(keys.shape[2]).expand(3, keys.shape[0], -1)


def _last(x: Tensor, size: int) -> Tensor:
    """The last positions of x, with zeros in front of a shorter one."""
    if x.shape[-1] < size:
        return torch.nn.functional.pad(x, (size - x.shape[-1], 0))
    return x[..., -size:]
