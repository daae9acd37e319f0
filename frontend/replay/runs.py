"""A program to a folded graph: run on fake tensors for one workload, imported, tidied and folded by its scopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...ir.errors import TraceError
from ...ir.graph import Graph, Workload
from ...ir.verify import verify
from ..adapter import FakeWorld, faked
from ..aten import HANDLERS
from ..blocks import Identity
from ..flat import Flat
from ..fx_import import import_fx
from ..lift import lifted
from ..record import Recorder, kept_mode, record_with
from ..scoped import fold_by_scope
from ..tidy import tidy
from ..workloads import loss_of
from .calls import Calls
from .interpreter import Replay
from .program import FixedInput, HeldInput, Program, SizeInput, TensorInput
from .sizes import BATCH, KV, SEQ, Naming, hints_for, name_sizes


def graph_of(program: Program, workload: Workload, sizes: Mapping[str, str | int] | None = None) -> Graph:
    """Return the verified, folded graph of a program.

    In training the first output must be logits or a scalar loss; the loss of logits and the backward pass are added.
    """
    naming = name_sizes(program, sizes)
    flat, notes = _recorded(program, workload, naming)
    given = (*program.notes, naming.note, _fixed_note(program, naming), *notes)
    identity = Identity(program.name, workload, program.dtype, tuple(n for n in given if n))
    graph = fold_by_scope(flat, identity)
    verify(graph)
    return graph


def _fixed_note(program: Program, naming: Naming) -> str:
    known = {name for t in program.tensors for d in naming.dims(t) if not isinstance(d, int) for name in d.symbols}
    fixed = [t for t in program.tensors if not known.intersection((BATCH, SEQ)) and len(t.dims) > 1]
    if not fixed:
        return ""
    shape = ", ".join(map(str, fixed[0].dims))
    return f"the sizes are fixed: {fixed[0].name} is [{shape}], whatever batch and length a plan gives"


def _recorded(program: Program, workload: Workload, naming: Naming) -> tuple[Flat, tuple[str, ...]]:
    world, hints, train = FakeWorld(), hints_for(program), workload is Workload.TRAIN
    with ExitStack() as scope:
        scope.enter_context(_ready(program, world, train))
        args, inputs = _arguments(program, world, naming, hints)
        labels = _labels(program, world, naming, hints) if train else None
        recorder = Recorder(program.root, inputs | ({} if labels is None else {"labels": labels}), world)
        calls = Calls(recorder, world, hints)

        def run() -> tuple[Tensor, ...]:
            with calls:
                found = _tensors(Replay(program.graph, recorder).run(*args), program)
            recorder.scopes[-1] = ""
            return (_loss(found, labels, program),) if labels is not None else found

        scope.enter_context(world.mode)
        scope.enter_context(lifted(program.root))
        recording = record_with(recorder, program.root, run, world, train)
        flat = tidy(import_fx(recording.graph, world, recording.results, recording.grads, HANDLERS))
    return flat, tuple(calls.notes)


@contextmanager
def _ready(program: Program, world: FakeWorld, train: bool) -> Iterator[None]:
    """Parameters are fake for a while, those of the graph's own modules too."""
    with ExitStack() as scope:
        scope.enter_context(faked(program.root, world))
        if program.graph is not program.root:
            scope.enter_context(faked(program.graph, world))
        scope.enter_context(kept_mode(program.root, train))
        yield


def _arguments(
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


def _labels(program: Program, world: FakeWorld, naming: Naming, hints: Mapping[str, int]) -> Tensor:
    first = next((t for t in program.tensors if len(t.dims) > 1), None)
    if first is None:
        raise TraceError(f"'{program.name}' is given no tensor of two dims, so there is nothing to train on")
    return world.sized(naming.dims(first)[:2], torch.int64, hints)


def _tensors(out: object, program: Program) -> tuple[Tensor, ...]:
    leaves = pytree.tree_leaves(out)
    chosen = leaves if program.outputs is None else [leaves[i] for i in program.outputs]
    found = tuple(dict.fromkeys(t for t in chosen if isinstance(t, Tensor)))
    if not found:
        raise TraceError(f"'{program.name}' returns no tensor")
    return found


def _loss(found: tuple[Tensor, ...], labels: Tensor, program: Program) -> Tensor:
    scalar = next((t for t in found if t.dim() == 0 and t.requires_grad), None)
    return loss_of(found[0] if scalar is None else scalar, labels)


__all__ = ["graph_of"]
