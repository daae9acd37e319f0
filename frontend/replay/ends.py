"""The two ends of a run of a program: what the graph is called with, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...ir.errors import TraceError
from ..loss import loss_of
from ..record.adapter import FakeWorld
from ..record.record import Tensors
from .program import FixedInput, HeldInput, Program, SizeInput, TensorInput
from .sizes import KV, Naming

LABELS = "labels"


def arguments(
    program: Program, world: FakeWorld, naming: Naming, hints: Mapping[str, int]
) -> tuple[list[object], dict[str, Tensor]]:
    """Return what the graph is called with, in order, and the tensors among it that are inputs, by name."""
    held = {**dict(program.root.named_parameters(remove_duplicate=False)),
            **dict(program.root.named_buffers(remove_duplicate=False))}  # fmt: skip
    caches = _cache_names(program, naming)
    args: list[object] = []
    inputs: dict[str, Tensor] = {}
    for source in program.sources:
        if isinstance(source, HeldInput):
            args.append(held[source.path])
        elif isinstance(source, SizeInput):
            args.append(world.evaluated(naming.dim(source.value), hints))
        elif isinstance(source, FixedInput):
            args.append(source.value)
        else:
            made = world.sized(naming.dims(source), source.dtype, hints)
            inputs[caches.get(source.name, source.name)] = made
            args.append(made)
    return args, inputs


def _cache_names(program: Program, naming: Naming) -> dict[str, str]:
    """Inputs [batch, heads, kv, dim] are the cache, keys and values of one layer after the other."""
    found = [t.name for t in program.tensors if len(t.dims) == 4 and _is_cache(t, naming)]
    sides = ("keys", "values")
    if len(found) > 1 and all("value" in n or n.startswith("v") for n in found[len(found) // 2 :]):
        half = len(found) // 2
        found = [n for pair in zip(found[:half], found[half:], strict=True) for n in pair]
    return {name: f"cache.{k // 2}.{sides[k % 2]}" for k, name in enumerate(found)}


def _is_cache(given: TensorInput, naming: Naming) -> bool:
    length = naming.dims(given)[2]
    return given.dtype.is_floating_point and not isinstance(length, int) and KV in length.symbols


def labels_for(program: Program, world: FakeWorld, naming: Naming, hints: Mapping[str, int]) -> Tensor:
    """Return the labels of a training step: one for each position of the first input of two dims."""
    first = next((t for t in program.tensors if len(t.dims) > 1), None)
    if first is None:
        raise TraceError(f"'{program.name}' is given no tensor of two dims, so there is nothing to train on")
    return world.sized(naming.dims(first)[:2], torch.int64, hints)


def tensors_of(out: object, program: Program) -> Tensors:
    """Return the tensors among what the caller gets, each once; TraceError when there is none."""
    leaves = pytree.tree_leaves(out)
    chosen = leaves if program.outputs is None else [leaves[i] for i in program.outputs]
    found = tuple(dict.fromkeys(t for t in chosen if isinstance(t, Tensor)))
    if not found:
        raise TraceError(f"'{program.name}' returns no tensor")
    return found


def loss_among(found: Tensors, labels: Tensor) -> Tensor:
    """Return the scalar among the results that can be trained on, else the loss of the first one as logits."""
    scalar = next((t for t in found if t.dim() == 0 and t.requires_grad), None)
    return loss_of(found[0] if scalar is None else scalar, labels)


def of_results(root: nn.Module, results: Tensors, inputs: Tensors) -> tuple[Tensors, Mapping[str, Tensor]]:
    """Take the gradients for all parameters and for inputs, which leave the graph, given those of the results."""
    trained = [t for t in results if t.requires_grad]
    named = {n: p for n, p in root.named_parameters() if p.requires_grad}
    if not trained:
        return results, {}
    seeds = [torch.empty_like(t) for t in trained]
    grads = torch.autograd.grad(trained, [*named.values(), *inputs], seeds, allow_unused=True)
    passed_on = tuple(g for g in grads[len(named) :] if g is not None)
    return (*results, *passed_on), {n: g for n, g in zip(named, grads, strict=False) if g is not None}


__all__ = ["LABELS", "arguments", "labels_for", "loss_among", "of_results", "tensors_of"]
