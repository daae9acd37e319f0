"""What is run while recording: a training step, a prefill or one decode step of a language model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from ..ir.errors import NotBuiltError
from ..ir.graph import Workload
from ..ir.records import dataclass
from ..ir.sizes.expr import symbol
from ..ir.sizes.rounding import floor_div
from .huggingface.odd_models import ids_a_row
from .huggingface.operators.cache import Past, cache_class
from .huggingface.operators.linear import remembers, scanned
from .loss import loss_of, returned_tensor
from .record.adapter import FakeWorld
from .record.failures import explained
from .semantic.lift import lifted

# Example sizes of the symbolic dims: not 0 or 1, and different, so that no two are taken for the same.
HINTS = {"batch": 3, "seq": 48, "kv": 80, "src": 112}

# What models call the cache they take.
_CACHE_NAMES = ("past_key_values", "cache_params")


class LayerState(Protocol):
    """What a layer of a cache has after a run."""

    keys: Tensor | None
    values: Tensor | None
    conv_states: Mapping[int, Tensor | None]
    recurrent_states: Mapping[int, Tensor | None]
    index_keys: Tensor | None
    compress_rate: int
    entries: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    overlaps: Mapping[str, Tensor]


class ModelCache(Protocol):
    """A cache of transformers."""

    layers: Sequence[LayerState]


class ModelOutput(Protocol):
    """What a language model returns."""

    logits: Tensor


@dataclass(frozen=True, slots=True)
class RecordingRun:
    """The inputs of a recording and the call to record."""

    inputs: Mapping[str, Tensor]
    call: Callable[[], tuple[Tensor, ...]]


def plan_one(model: nn.Module, world: FakeWorld, workload: Workload, is_transformers: bool) -> RecordingRun:
    """Return inputs (with symbolic batch, sequence and KV length) and what to call on them, of a model of one part."""
    if workload is Workload.TRAIN:
        return _train(model, world, is_transformers)
    if not is_transformers:
        return _forward(model, world)
    if not _generates(model):
        if workload is Workload.DECODE:
            raise NotBuiltError(
                f"{type(model).__name__} is an encoder: it reads all tokens at once and has no decode step; ask for "
                "--phase train or prefill"
            )
        return _forward(model, world)
    return _prefill(model, world) if workload is Workload.PREFILL else _decode(model, world)


def ids_of(world: FakeWorld, *dims: int | str) -> Tensor:
    """Return token ids of these dims; a dim given by name is symbolic."""
    return world.tensor(dims, torch.int64, HINTS)


def _rows(model: nn.Module, world: FakeWorld, length: int | str) -> Tensor:
    """Token ids of a batch; models that read several rows a sequence get these, one sequence after another."""
    rows = ids_a_row(model)
    if rows == 1:
        return ids_of(world, "batch", length)
    ids = ids_of(world, "batch", rows, length)
    with world.mode:
        return torch.empty(ids.shape[0] * rows, ids.shape[2], dtype=torch.int64, device="cpu")


def _train(model: nn.Module, world: FakeWorld, is_transformers: bool) -> RecordingRun:
    ids = _rows(model, world, "seq")
    with world.mode:
        labels = torch.empty(ids.shape, dtype=torch.int64, device="cpu")

    def call() -> tuple[Tensor, ...]:
        out = model(input_ids=ids, use_cache=False) if is_transformers else model(ids)
        return (loss_of(out, labels),)

    return RecordingRun({"input_ids": ids, "labels": labels}, call)


def _forward(model: nn.Module, world: FakeWorld) -> RecordingRun:
    ids = ids_of(world, "batch", "seq")

    def call() -> tuple[Tensor, ...]:
        out = model(ids)
        return (returned_tensor(out, "logits"),)

    return RecordingRun({"input_ids": ids}, call)


def _generates(model: nn.Module) -> bool:
    """Whether a model of transformers makes one token after another; encoders do not."""
    return bool(model.can_generate())  # type: ignore[operator]


def _prefill(model: nn.Module, world: FakeWorld) -> RecordingRun:
    ids = _rows(model, world, "seq")

    return RecordingRun({"input_ids": ids}, lambda: (prefilled(model, {"input_ids": ids}),))


def prefilled(model: nn.Module, inputs: Mapping[str, object]) -> Tensor:
    """Run a model on a prompt and return the logits of its last token; keys and values of all go into a cache."""
    out, _ = _remembered(model, [Past()] * _num_layers(model), {**inputs, "logits_to_keep": 1})
    return out.logits


def _decode(model: nn.Module, world: FakeWorld) -> RecordingRun:
    ids = _rows(model, world, 1)
    with world.mode:
        positions = torch.empty((ids.shape[0] // ids_a_row(model), 1), dtype=torch.int64, device="cpu")
    pasts = _pasts(model, world)
    inputs = {"input_ids": ids, "position_ids": positions}
    for i, past in enumerate(pasts):
        inputs |= dict(past.named(i))

    def call() -> tuple[Tensor, ...]:
        out, _ = _remembered(model, pasts, {"input_ids": ids, "position_ids": positions})
        return (out.logits,)

    return RecordingRun(inputs, call)


def _num_layers(model: nn.Module) -> int:
    of_text = getattr(model.config, "get_text_config", lambda: model.config)()
    layers = getattr(model.config, "num_hidden_layers", None) or getattr(of_text, "num_hidden_layers", None)
    return int(layers or 0)  # the cache grows by what a model asks for


def _remembered(
    model: nn.Module, pasts: Sequence[Past], inputs: Mapping[str, object]
) -> tuple[ModelOutput, ModelCache]:
    """Run a model with what it has of the tokens before; return its output and the cache behind it."""
    cache = cache_class()(list(pasts))
    own = remembers(model)
    name = next((n for n in _CACHE_NAMES if n in _parameters(model)), _CACHE_NAMES[0])
    given = {} if own else {name: cache}
    with scanned(model, cache):
        # The options that the model's forward names; what it only passes on would land in functions that do not.
        options = {**inputs, "use_cache": not own}
        known = _parameters(model)
        return model(**given, **{name: value for name, value in options.items() if name in known}), cache


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(type(model).forward).parameters


def _pasts(model: nn.Module, world: FakeWorld) -> list[Past]:
    """Ask the model itself for the shapes it caches: one tiny prefill, then batch and length made symbolic."""
    with explained(model), world.mode, torch.no_grad(), lifted(model):
        ids = torch.zeros(2 * ids_a_row(model), 4, dtype=torch.int64)
        _, cache = _remembered(model, [Past()] * _num_layers(model), {"input_ids": ids})
    made = [symbolic_past(layer, world, "kv") for layer in cache.layers]
    if not any(dict(past.named(0)) for past in made):
        raise NotBuiltError(f"{type(model).__name__} of transformers keeps no cache, so it has no decode step")
    return made


def symbolic_past(layer: LayerState, world: FakeWorld, length: str | int) -> Past:
    """Return what a layer keeps, with a batch and a length that are symbolic."""

    def state(t: Tensor) -> Tensor:
        return world.tensor(("batch", *t.shape[1:]), t.dtype, HINTS)

    def tokens(t: Tensor | None) -> Tensor | None:
        return None if t is None else world.tensor(("batch", t.shape[1], length, t.shape[3]), t.dtype, HINTS)

    kinds = (layer.conv_states, layer.recurrent_states)
    conv, states = ({i: state(t) for i, t in held.items() if t is not None} for held in kinds)
    rate = layer.compress_rate
    kept = (symbol("batch"), 1, floor_div(symbol(str(length)), rate)) if layer.entries else ()
    entries = {n: world.sized((*kept, t.shape[3]), t.dtype, HINTS) for n, t in layer.entries.items()}
    buffers = {n: world.tensor(("batch", rate - 1, t.shape[2]), t.dtype, HINTS) for n, t in layer.buffers.items()}
    overlaps = {n: state(t) for n, t in layer.overlaps.items()}
    own = (tokens(layer.keys), tokens(layer.values), conv, states, tokens(layer.index_keys))
    return Past(*own, entries, buffers, overlaps)
