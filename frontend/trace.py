"""A module to a folded graph: shorten, record, import, tidy, fold; with everything recorded when folding fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeAlias

from torch import nn

from ..ir.graph import Graph, Workload
from ..ir.verify import verify
from .adapter import FakeWorld, faked
from .aten import HANDLERS
from .blocks import Identity, NotAlikeError, fold
from .flat import Flat
from .fx_import import Handler, import_fx
from .layers import LayerStack, find_stack, shortened
from .lenient import Lenient, noted
from .lift import lifted
from .probe import run_alike
from .record import kept_mode, record
from .regions import cut
from .scoped import whole
from .tidy import tidy
from .workloads import Run, plan_run

Handlers: TypeAlias = Mapping[str, Handler]


def trace(module: nn.Module, identity: Identity, is_transformers: bool, allow_unpriced: bool = False) -> Graph:
    """Return the verified, folded graph of a module built on the meta device, which is left as it was.

    Only the distinct layers are run. When layers that look alike run differently, all of them are recorded; when they
    are no chain at all, the graph has no blocks and a note that says why. Operators without a rule are an error; with
    `allow_unpriced` they are nodes of which only the bytes count.
    """
    handlers = Lenient(HANDLERS) if allow_unpriced else HANDLERS
    stack = find_stack(module)
    if stack is not None and not is_transformers and not _is_safe_to_shorten(module, identity, stack):
        stack = stack.kept_all()
    graph = _with_unused(noted(_trace(module, identity, is_transformers, stack, handlers)), module)
    verify(graph)
    return graph


def _trace(
    module: nn.Module, identity: Identity, is_transformers: bool, stack: LayerStack | None, handlers: Handlers
) -> Graph:
    flat = _recorded(module, identity, is_transformers, stack, handlers)
    if stack is None:
        return whole(flat, identity)
    try:
        return fold(cut(flat, stack.path, len(stack.kept)), stack.classes, stack.kept, identity)
    except NotAlikeError as error:
        if stack == stack.kept_all():
            return whole(flat, replace(identity, notes=(*identity.notes, f"layers are not folded: {error}")))
    return _trace(module, identity, is_transformers, stack.kept_all(), handlers)


def _recorded(
    module: nn.Module, identity: Identity, is_transformers: bool, stack: LayerStack | None, handlers: Handlers
) -> Flat:
    world = FakeWorld()
    with ExitStack() as scope:
        if stack is not None:
            scope.enter_context(shortened(module, stack))
        run = scope.enter_context(_prepared(module, identity, is_transformers, world))
        recording = record(module, run.inputs, run.call, world, identity.workload is Workload.TRAIN)
        return tidy(import_fx(recording.graph, world, recording.results, recording.grads, handlers))


def _is_safe_to_shorten(module: nn.Module, identity: Identity, stack: LayerStack) -> bool:
    with _prepared(module, identity, False, FakeWorld()) as run:
        return run_alike(module, stack, run.call)


@contextmanager
def _prepared(module: nn.Module, identity: Identity, is_transformers: bool, world: FakeWorld) -> Iterator[Run]:
    """Everything that surrounds a run: fake parameters, the mode, inputs, and semantic operators in place of calls."""
    with ExitStack() as scope:
        scope.enter_context(faked(module, world))
        if is_transformers:
            from .huggingface import patched

            scope.enter_context(patched(module))
        scope.enter_context(kept_mode(module, identity.workload is Workload.TRAIN))
        run = plan_run(module, world, identity.workload, is_transformers)
        scope.enter_context(world.mode)
        scope.enter_context(lifted(module))
        yield run


def _with_unused(graph: Graph, module: nn.Module) -> Graph:
    """Return the graph with a note on parameters that the module holds and no operator reads."""
    num, whole = round(float(graph.num_parameters.evaluate({}))), count_parameters(module)
    if num >= whole:
        return graph
    note = f"{whole - num:,} of {whole:,} parameters take no part in {graph.workload} and are not in the graph"
    return replace(graph, notes=(*graph.notes, note))


def count_parameters(module: nn.Module) -> int:
    """Return the number of distinct parameters of a module."""
    return sum(p.numel() for p in module.parameters())


__all__ = ["count_parameters", "trace"]
