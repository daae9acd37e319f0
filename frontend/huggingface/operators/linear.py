"""Delta rules, linear attention and elementwise recurrences of transformers models: one scan in place of each loop.

transformers spells a recurrence out in torch, chunk by chunk or step by step, for machines without a fused kernel. What
is recorded is what the fused kernels do: one operator over the whole sequence. A recurrence is recognised by the name
and signature of its function, or by the attributes of its module; never by the name of a model.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...record.adapter import swapped
from ...record.preserve import Contexts, one_context
from ...semantic import semantic
from ...semantic.constants import norm_constants
from ...semantic.scan import l2_norm, scan
from .cache import CacheSlot, StateCache
from .recurrent import griffin_methods, rwkv_methods

_OF_LIGHTNING = ("slope_rate", "qkv_proj", "output_gate", "out_proj", "norm", "act_fn", "block_size", "head_dim")


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


def lightning_methods(part: nn.Module, memory: CacheSlot) -> Mapping[str, Callable[..., object]]:
    """Return the forward of a lightning attention; nothing for another module."""
    return {"forward": _lightning_forward(part, memory)} if _is_lightning(part) else {}


def _is_lightning(part: object) -> TypeGuard[_Lightning]:
    return all(hasattr(part, name) for name in _OF_LIGHTNING)


def _lightning_forward(module: _Lightning, memory: CacheSlot) -> Callable[..., tuple[Tensor, None]]:
    heads, dim = module.num_attention_heads, module.head_dim

    def forward(
        hidden_states: Tensor, past_key_values: StateCache | None = None, **_options: object
    ) -> tuple[Tensor, None]:
        b, length, _ = hidden_states.shape
        own = CacheSlot(past_key_values, memory.layer)
        qkv = module.act_fn(module.qkv_proj(hidden_states)).reshape(b, length, heads, 3 * dim)
        q, k, v = torch.split(qkv, dim, dim=3)
        before = own.state()
        chunk = module.block_size if before is None else 0
        y, state = scan(v, [q, k, module.slope_rate.view(heads)], before, "linear", chunk, dim)
        own.keep(state)
        normed = module.norm(y.reshape(b, length, heads * dim))
        return module.out_proj(torch.sigmoid(module.output_gate(hidden_states)) * normed), None

    return forward


def mlstm_methods(part: nn.Module, memory: CacheSlot) -> Mapping[str, Callable[..., object]]:
    """Return the forward of an mLSTM backend; nothing for another module."""
    chunk = getattr(getattr(part, "config", None), "chunk_size", None)
    if not hasattr(part, "chunkwise_kernel_fn") or not isinstance(chunk, int):
        return {}
    return {"forward": _mlstm_forward(chunk, memory)}


def _mlstm_forward(chunk: int, memory: CacheSlot) -> Callable[..., tuple[Tensor, None]]:
    """The state of a head is the matrix [n, p]; its normaliser [n] and running maximum ride along in the kernel."""

    def forward(
        query: Tensor, key: Tensor, value: Tensor, igate: Tensor, fgate: Tensor, **_options: object
    ) -> tuple[Tensor, None]:
        q, k, v, i, f = (t.transpose(1, 2) for t in (query, key, value, igate, fgate))
        before = memory.state()
        y, state = scan(v, [q, k, i, f], before, "linear", chunk if before is None else 0, k.shape[-1])
        memory.keep(state)
        return y.transpose(1, 2), None

    return forward


def norms_methods(part: nn.Module, memory: CacheSlot) -> Mapping[str, Callable[..., object]]:
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


_OF_SHORT_CONV = ("static_weight", "weight_proj", "conv_kernel_size", "conv_idx", "num_heads")


class _Dynamic(Protocol):
    static_weight: Tensor
    conv_kernel_size: int
    conv_idx: int
    num_heads: int

    def weight_proj(self, x: Tensor) -> Tensor: ...


def short_conv_methods(part: nn.Module, memory: CacheSlot) -> Mapping[str, Callable[..., object]]:
    """Return the forward of such a convolution; nothing for another module."""
    return {"forward": _short_conv_forward(part, memory)} if _is_dynamic(part) else {}


def _is_dynamic(part: object) -> TypeGuard[_Dynamic]:
    return all(hasattr(part, name) for name in _OF_SHORT_CONV)


def _short_conv_forward(module: _Dynamic, memory: CacheSlot) -> Callable[..., Tensor]:
    taps, heads = module.conv_kernel_size, module.num_heads

    def forward(
        hidden_states: Tensor, dynamic_input: Tensor, past_key_values: StateCache | None = None, **_options: object
    ) -> Tensor:
        b, length, width = hidden_states.shape
        own = CacheSlot(past_key_values, memory.layer)
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


# Tokens of a chunk: what the torch fallbacks and flash-linear-attention use.
CHUNK = 64


def _chunked_delta(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    chunk_size: int = CHUNK,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **_options: object,
) -> tuple[Tensor, Tensor | None]:
    """The gated delta rule over q, k [b, L, g, n], v [b, L, h, p], decay [b, L, h] or [b, L, h, n], beta [b, L, h].

    Kernels of their own normalise queries and keys before the chunked ones (flash-linear-attention: `l2norm_fwd` in
    `chunk_gated_delta_rule`).
    """
    if use_qk_l2norm_in_kernel:
        query, key = l2_norm(query)[0], l2_norm(key)[0]
    y, state = scan(value, [query, key, g, beta], initial_state, "delta", chunk_size, key.shape[-1])
    return y, state if output_final_state else None


def _stepped_delta(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    **_options: object,
) -> tuple[Tensor, Tensor | None]:
    """One step after another, in one kernel that normalises queries and keys as well."""
    y, state = scan(value, [query, key, g, beta], initial_state, "delta", 0, key.shape[-1])
    return y, state if output_final_state else None


_FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        "torch_chunk_gated_delta_rule": _chunked_delta,
        "torch_recurrent_gated_delta_rule": _stepped_delta,
        "chunk_kimi_delta_attention": _chunked_delta,
        "recurrent_kimi_delta_attention": _stepped_delta,
    }
)
_METHODS = (lightning_methods, griffin_methods, rwkv_methods, mlstm_methods, short_conv_methods, norms_methods)
_LAYER = re.compile(r"(?:^|\.)([0-9]+)(?:\.|$)")


@one_context
def scanned(model: nn.Module, cache: StateCache | None = None) -> Contexts:
    """Put scans in the place of a model's loops for the time of a recording.

    With a cache, models that keep their states by themselves keep them there.
    """
    for module in {sys.modules[type(m).__module__] for m in model.modules()}:
        for name, function in _FUNCTIONS.items():
            if hasattr(module, name):
                yield swapped(module, name, function)
        for name in _own_caches(module) if cache is not None else ():
            yield swapped(module, name, type(cache))
    for path, part in model.named_modules():
        for name, method in _methods(path, part, cache).items():
            yield swapped(part, name, method)


def _own_caches(module: ModuleType) -> list[str]:
    """The cache classes that a modelling file defines for itself, and insists on."""
    from transformers.cache_utils import Cache

    found = ((name, c) for name, c in vars(module).items() if isinstance(c, type) and issubclass(c, Cache))
    return [name for name, c in found if c.__module__ == module.__name__]


def remembers(model: nn.Module) -> bool:
    """Whether a model takes no cache of states that we could hand to it: then `scanned` is told of the cache."""
    nothing = CacheSlot(None, 0)
    return any(own(part, nothing) for own in (rwkv_methods, mlstm_methods) for part in model.modules())


def _methods(path: str, part: nn.Module, cache: StateCache | None) -> Mapping[str, Callable[..., object]]:
    """What takes the place of the methods of a module that holds a recurrence."""
    layer = _LAYER.search(path)
    memory = CacheSlot(cache, int(layer.group(1)) if layer else 0)
    return next((found for known in _METHODS if (found := known(part, memory))), {})
