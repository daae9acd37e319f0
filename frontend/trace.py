"""A module to a folded graph: shorten, record, import, tidy, fold; with everything recorded when folding fails."""

from __future__ import annotations

from contextlib import ExitStack

from torch import nn

from ..ir.expr import Expr
from ..ir.graph import Graph
from ..ir.verify import verify
from .adapter import FakeWorld, make_fake
from .aten import HANDLERS
from .blocks import Identity, NotAlikeError, fold
from .fx_import import import_fx
from .layers import LayerStack, find_stack, shortened
from .lift import lifted
from .record import Recording, kept_mode, record
from .regions import cut
from .tidy import tidy
from .workloads import plan_run


def trace(module: nn.Module, identity: Identity, is_transformers: bool) -> Graph:
    """Return the verified, folded graph of a module built on the meta device.

    Only the distinct layers are run. When layers that look alike run differently, all of them are recorded.
    """
    stack = find_stack(module)
    try:
        graph = _trace(module, identity, is_transformers, stack)
    except NotAlikeError:
        if stack is None:
            raise
        graph = _trace(module, identity, is_transformers, stack.kept_all())
    verify(graph)
    return graph


def _trace(module: nn.Module, identity: Identity, is_transformers: bool, stack: LayerStack | None) -> Graph:
    world = FakeWorld()
    with ExitStack() as scope:
        if stack is not None:
            scope.enter_context(shortened(module, stack))
        make_fake(module, world)
        recording = _record(module, identity, is_transformers, world)
    flat = tidy(import_fx(recording.graph, world, recording.results, recording.grads, HANDLERS))
    parts = cut(flat, stack.path if stack else "", len(stack.kept) if stack else 0)
    return fold(parts, stack.classes if stack else (), stack.kept if stack else (), identity)


def _record(module: nn.Module, identity: Identity, is_transformers: bool, world: FakeWorld) -> Recording:
    train = identity.workload == "train"
    with ExitStack() as scope:
        if is_transformers:
            from .huggingface import patched

            scope.enter_context(patched(module))
        scope.enter_context(kept_mode(module, train))
        run = plan_run(module, world, identity.workload, is_transformers)
        scope.enter_context(world.mode)
        scope.enter_context(lifted(module))
        return record(module, run.inputs, run.call, world, train)


def count_parameters(module: nn.Module) -> int:
    """Return the number of distinct parameters of a module."""
    return sum(p.numel() for p in module.parameters())


__all__ = ["Expr", "count_parameters", "trace"]
