"""What is run while recording: a training step, a prefill or one decode step of a language model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ..ir.errors import TraceError
from ..ir.graph import Workload
from . import semantic
from .adapter import FakeWorld
from .hf_cache import Past, cache_class
from .lift import lifted

# Example sizes of the symbolic dims: not 0 or 1, and different, so that no two are taken for the same.
HINTS = {"batch": 3, "seq": 48, "kv": 80}


# What models call the cache they take.
_CACHE_NAMES = ("past_key_values", "cache_params")


class Held(Protocol):
    """What a layer of a cache has after a run."""

    keys: Tensor | None
    values: Tensor | None
    conv_states: Mapping[int, Tensor | None]
    recurrent_states: Mapping[int, Tensor | None]


@dataclass(frozen=True, slots=True)
class Run:
    """The inputs of a recording and the call to record."""

    inputs: Mapping[str, Tensor]
    call: Callable[[], tuple[Tensor, ...]]


def plan_run(model: nn.Module, world: FakeWorld, workload: Workload, is_transformers: bool) -> Run:
    """Return inputs (with symbolic batch, sequence and KV length) and what to call on them."""
    if workload is Workload.TRAIN:
        return _train(model, world, is_transformers)
    if not is_transformers:
        return _forward(model, world)
    return _prefill(model, world) if workload is Workload.PREFILL else _decode(model, world)


def _ids(world: FakeWorld, *dims: int | str) -> Tensor:
    return world.tensor(dims, torch.int64, HINTS)


def _train(model: nn.Module, world: FakeWorld, is_transformers: bool) -> Run:
    ids = _ids(world, "batch", "seq")
    with world.mode:
        labels = torch.empty(ids.shape, dtype=torch.int64, device="cpu")

    def call() -> tuple[Tensor, ...]:
        out = model(input_ids=ids, use_cache=False) if is_transformers else model(ids)
        return (_loss(out, labels),)

    return Run({"input_ids": ids, "labels": labels}, call)


def _loss(out: object, labels: Tensor) -> Tensor:
    """Mean cross-entropy of logits [batch, seq, vocab] in fp32; a scalar is taken as the loss itself."""
    found = getattr(out, "logits", out)
    if not isinstance(found, Tensor):
        raise TraceError(
            f"the module returns {type(out).__name__}; it must return logits, an object with `logits`, or a loss"
        )
    if found.dim() == 0:
        return found
    if found.dim() != labels.dim() + 1:
        raise TraceError(
            f"the module returns a tensor of {found.dim()} dims; logits have {labels.dim() + 1}, a loss has 0"
        )
    return semantic.cross_entropy(found.float(), labels)[0]


def _forward(model: nn.Module, world: FakeWorld) -> Run:
    ids = _ids(world, "batch", "seq")

    def call() -> tuple[Tensor, ...]:
        out = model(ids)
        found = getattr(out, "logits", out)
        if not isinstance(found, Tensor):
            raise TraceError(
                f"the module returns {type(out).__name__}; it must return a tensor or an object with `logits`"
            )
        return (found,)

    return Run({"input_ids": ids}, call)


def _prefill(model: nn.Module, world: FakeWorld) -> Run:
    ids = _ids(world, "batch", "seq")

    def call() -> tuple[Tensor, ...]:
        options = _accepted(model, {"use_cache": True, "logits_to_keep": 1})
        out = model(input_ids=ids, **_cache(model, [Past()] * _num_layers(model)), **options)
        return (out.logits,)

    return Run({"input_ids": ids}, call)


def _decode(model: nn.Module, world: FakeWorld) -> Run:
    ids = _ids(world, "batch", 1)
    with world.mode:
        positions = torch.empty(ids.shape, dtype=torch.int64, device="cpu")
    pasts = _pasts(model, world)
    inputs = {"input_ids": ids, "position_ids": positions}
    for i, past in enumerate(pasts):
        inputs |= dict(past.named(i))

    def call() -> tuple[Tensor, ...]:
        options = _accepted(model, {"use_cache": True, "position_ids": positions})
        out = model(input_ids=ids, **_cache(model, pasts), **options)
        return (out.logits,)

    return Run(inputs, call)


def _num_layers(model: nn.Module) -> int:
    return int(model.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]


def _cache(model: nn.Module, pasts: Sequence[Past]) -> Mapping[str, object]:
    """A cache under the name by which the model takes one."""
    name = next((n for n in _CACHE_NAMES if n in _parameters(model)), _CACHE_NAMES[0])
    return {name: cache_class()(list(pasts))}


def _accepted(model: nn.Module, options: Mapping[str, object]) -> Mapping[str, object]:
    """The options that the model's forward names; what it only passes on would land in functions that do not."""
    known = _parameters(model)
    return {name: value for name, value in options.items() if name in known}


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(type(model).forward).parameters


def _pasts(model: nn.Module, world: FakeWorld) -> list[Past]:
    """Ask the model itself for the shapes it caches: one tiny prefill, then batch and length made symbolic."""
    given = _cache(model, [Past()] * _num_layers(model))
    with world.mode, torch.no_grad(), lifted(model):
        model(input_ids=torch.zeros(2, 4, dtype=torch.int64), use_cache=True, **given)
    (cache,) = given.values()
    return [_symbolic(layer, world) for layer in cache.layers]  # type: ignore[attr-defined]


def _symbolic(layer: Held, world: FakeWorld) -> Past:
    def state(t: Tensor) -> Tensor:
        return world.tensor(("batch", *t.shape[1:]), t.dtype, HINTS)

    def tokens(t: Tensor | None) -> Tensor | None:
        return None if t is None else world.tensor(("batch", t.shape[1], "kv", t.shape[3]), t.dtype, HINTS)

    kinds = (layer.conv_states, layer.recurrent_states)
    conv, states = ({i: state(t) for i, t in held.items() if t is not None} for held in kinds)
    return Past(tokens(layer.keys), tokens(layer.values), conv, states)
