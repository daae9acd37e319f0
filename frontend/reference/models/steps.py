"""What a serving step is compared with: the module itself behind a prompt, with a cache of transformers, in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor

from ....ir.graph import Workload
from ....ir.ops.fused.scan import ScanAttrs
from ...huggingface.operators.cache import Past
from ...huggingface.operators.linear import remembers
from ...loss import returned_tensor
from ...workloads import Cache, Held
from ..call import NotComputedError
from .double import in_double
from .subject import Subject

_CACHES = ("past_key_values", "cache_params")
# Mamba's state is [batch, channels, n] in transformers, Mamba-2's [batch, heads, p, n].
_TURNED: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"selective": lambda t: t.unsqueeze(-1), "ssd": lambda t: t.transpose(2, 3)}
)


@dataclass(frozen=True)
class Step:
    """A step of the module: what it is given, by the names of a graph's inputs, its logits, and its cache behind it."""

    workload: Workload
    length: int
    inputs: Mapping[str, Tensor]
    logits: Tensor
    kept: Mapping[str, Tensor]


def step_of(subject: Subject, workload: Workload, batch: int, length: int) -> Step:
    """Run a prompt of `length` tokens, and for decode one token more; NotComputedError where there is no cache.

    Layers with a window keep the whole prompt here, behind masks of their own: a graph takes what its window leaves.
    """
    module = subject.module
    if getattr(module.config, "is_encoder_decoder", False) or remembers(module):
        raise NotComputedError("a serving step of a model that keeps no cache of transformers' own kind")
    made = torch.Generator().manual_seed(7)
    ids = torch.randint(3, subject.vocabulary, (batch, length + 1), generator=made)
    with in_double(), torch.no_grad():
        cache = _empty_cache(subject)
        logits = _called(subject, ids[:, :length], cache, 0)
        if workload is Workload.PREFILL:
            return Step(workload, length, {"input_ids": ids[:, :length]}, logits, _tensors(subject, cache))
        before = _tensors(subject, cache)
        logits = _called(subject, ids[:, length:], cache, length)
    given = {"input_ids": ids[:, length:], "position_ids": torch.full((batch, 1), length), **before}
    return Step(workload, length, given, logits, _tensors(subject, cache))


def _empty_cache(subject: Subject) -> Cache:
    from transformers.cache_utils import CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = DynamicCache(config=subject.module.config)  # type: ignore[arg-type]
    make: Callable[[], CacheLayerMixin] = DynamicLayer
    layers = [make() if type(x) is DynamicSlidingWindowLayer else x for x in cache.layers]
    cache.layers = layers
    return cast("Cache", cache)


def _called(subject: Subject, ids: Tensor, cache: Cache, start: int) -> Tensor:
    """Logits of some tokens; the cache grows by them."""
    known = inspect.signature(type(subject.module).forward).parameters
    name = next((n for n in _CACHES if n in known), "")
    if not name:
        raise NotComputedError("a serving step of a model that takes no cache")
    positions = torch.arange(start, start + ids.shape[1]).expand(ids.shape)
    options = {"position_ids": positions} if "position_ids" in known else {}
    out = subject.module(input_ids=ids, use_cache=True, **{name: cache}, **options)
    return returned_tensor(out, "logits")


def _tensors(subject: Subject, cache: Cache) -> dict[str, Tensor]:
    """Return copies of what layers hold, states as the scans of the graph hold them: [batch, heads, n, p]."""
    kinds = {n.attrs.kind for r in subject.graph.regions for n in r.nodes if isinstance(n.attrs, ScanAttrs)}
    if len(kinds) > 1 and kinds & _TURNED.keys():
        raise NotComputedError(f"a cache with states of several kinds: {', '.join(sorted(kinds))}")
    turned = _TURNED.get(next(iter(kinds), ""))
    return {
        name: turned(t) if turned is not None and name.rpartition(".")[2].startswith("state") else t
        for name, t in _named(cache)
    }


def _named(cache: Cache) -> Iterator[tuple[str, Tensor]]:
    """Yield copies of what layers hold, by the names of a graph's caches.

    What one layer has of keys and values stands under `latents` side by side as well: latent attention caches that.
    """
    for k, layer in enumerate(cache.layers):
        past = _past(layer)
        yield from ((name, t.detach().clone()) for name, t in past.named(k))
        if past.keys is not None and past.values is not None and past.keys.shape[:3] == past.values.shape[:3]:
            yield f"cache.{k}.latents", torch.cat((past.keys, past.values), dim=3)


def _past(layer: Held) -> Past:
    conv, states = (
        {i: t for i, t in getattr(layer, name, {}).items() if t is not None}
        for name in ("conv_states", "recurrent_states")
    )
    keys, values, index = (_filled(getattr(layer, name, None)) for name in ("keys", "values", "index_keys"))
    return Past(keys, values, conv, states, index)


def _filled(given: Tensor | None) -> Tensor | None:
    return given if isinstance(given, Tensor) and given.numel() else None


__all__ = ["Step", "step_of"]
