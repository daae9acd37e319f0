"""What is run while recording: a training step, a prefill or one decode step of a language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..ir.errors import TraceError
from ..ir.graph import Workload
from . import semantic
from .adapter import FakeWorld
from .lift import lifted

# Example sizes of the symbolic dims: not 0 or 1, and different, so that no two are taken for the same.
HINTS = {"batch": 3, "seq": 48, "kv": 80}


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
        return (loss_of(out, labels),)

    return Run({"input_ids": ids, "labels": labels}, call)


def loss_of(out: object, labels: Tensor) -> Tensor:
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
    from .huggingface import cache_class

    ids = _ids(world, "batch", "seq")
    num_layers = int(model.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]

    def call() -> tuple[Tensor, ...]:
        cache = cache_class()([None] * num_layers)
        out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return (out.logits,)

    return Run({"input_ids": ids}, call)


def _decode(model: nn.Module, world: FakeWorld) -> Run:
    from .huggingface import cache_class

    ids = _ids(world, "batch", 1)
    with world.mode:
        positions = torch.empty(ids.shape, dtype=torch.int64, device="cpu")
    pasts = _pasts(model, world)
    inputs = {"input_ids": ids, "position_ids": positions}
    for i, (k, v) in enumerate(pasts):
        inputs |= {f"cache.{i}.keys": k, f"cache.{i}.values": v}

    def call() -> tuple[Tensor, ...]:
        cache = cache_class()(list(pasts))
        out = model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
        return (out.logits,)

    return Run(inputs, call)


def _pasts(model: nn.Module, world: FakeWorld) -> list[tuple[Tensor, Tensor]]:
    """Ask the model itself for the shapes it caches: one tiny prefill, then the length made symbolic."""
    from .huggingface import cache_class

    num_layers = int(model.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]
    cache = cache_class()([None] * num_layers)
    with world.mode, torch.no_grad(), lifted(model):
        model(input_ids=torch.zeros(2, 4, dtype=torch.int64), past_key_values=cache, use_cache=True)
    made: list[tuple[Tensor, Tensor]] = []
    for layer in cache.layers:
        k, v = (
            world.tensor(("batch", t.shape[1], "kv", t.shape[3]), t.dtype, HINTS) for t in (layer.keys, layer.values)
        )
        made.append((k, v))
    return made
