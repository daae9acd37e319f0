"""Delta rules, linear attention and elementwise recurrences of transformers models: one scan in place of each loop.

transformers spells a recurrence out in torch, chunk by chunk or step by step, for machines without a fused kernel. What
is recorded is what the fused kernels do: one operator over the whole sequence. A recurrence is recognised by the name
and signature of its function, or by the attributes of its module; never by the name of a model.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType, ModuleType

from torch import Tensor, nn

from ...record.adapter import swapped
from ...semantic.scan import l2_norm, scan
from . import (
    gated as hf_gated,
)
from . import (
    lightning as hf_lightning,
)
from . import (
    norms as hf_norms,
)
from . import (
    rwkv as hf_rwkv,
)
from . import (
    short_conv as hf_short_conv,
)
from . import (
    xlstm as hf_xlstm,
)
from .memory import Memory, StateCache

# Tokens of a chunk: what the torch fallbacks and flash-linear-attention use.
CHUNK = 64


def _chunked_delta(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, chunk_size: int = CHUNK,
    initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
    **_options: object,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The gated delta rule over q, k [b, L, g, n], v [b, L, h, p], decay [b, L, h] or [b, L, h, n], beta [b, L, h].

    Kernels of their own normalise queries and keys before the chunked ones (flash-linear-attention: `l2norm_fwd` in
    `chunk_gated_delta_rule`).
    """
    if use_qk_l2norm_in_kernel:
        query, key = l2_norm(query)[0], l2_norm(key)[0]
    y, state = scan(value, [query, key, g, beta], initial_state, "delta", chunk_size, key.shape[-1])
    return y, state if output_final_state else None


def _stepped_delta(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor | None = None,
    output_final_state: bool = False, **_options: object,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
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
_METHODS = tuple(m.methods for m in (hf_lightning, hf_gated, hf_rwkv, hf_xlstm, hf_short_conv, hf_norms))
_LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


@contextmanager
def scanned(model: nn.Module, cache: StateCache | None = None) -> Iterator[None]:
    """Put scans in the place of a model's loops for the time of a recording.

    With a cache, models that keep their states by themselves keep them there.
    """
    with ExitStack() as stack:
        for module in {sys.modules[type(m).__module__] for m in model.modules()}:
            for name, function in _FUNCTIONS.items():
                if hasattr(module, name):
                    stack.enter_context(swapped(module, name, function))
            for name in _own_caches(module) if cache is not None else ():
                stack.enter_context(swapped(module, name, type(cache)))
        for path, part in model.named_modules():
            for name, method in _methods(path, part, cache).items():
                stack.enter_context(swapped(part, name, method))
        yield


def _own_caches(module: ModuleType) -> list[str]:
    """The cache classes that a modelling file defines for itself, and insists on."""
    from transformers.cache_utils import Cache

    found = ((name, c) for name, c in vars(module).items() if isinstance(c, type) and issubclass(c, Cache))
    return [name for name, c in found if c.__module__ == module.__name__]


def remembers(model: nn.Module) -> bool:
    """Whether a model takes no cache of states that we could hand to it: then `scanned` is told of the cache."""
    nothing = Memory(None, 0)
    return any(own.methods(part, nothing) for own in (hf_rwkv, hf_xlstm) for part in model.modules())


def _methods(path: str, part: nn.Module, cache: StateCache | None) -> Mapping[str, Callable[..., object]]:
    """What takes the place of the methods of a module that holds a recurrence."""
    layer = _LAYER.search(path)
    memory = Memory(cache, int(layer.group(1)) if layer else 0)
    return next((found for known in _METHODS if (found := known(part, memory))), {})


__all__ = ["remembers", "scanned"]
