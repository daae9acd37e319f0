"""A module to a folded graph: record, import, tidy, fold; of a model of transformers only the distinct layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from torch import nn

from ...ir.errors import TraceError
from ...ir.graph import Graph, Workload
from ...ir.verify import verify
from ..aten.flat import Flat
from ..aten.fx_import import Handler, import_fx
from ..aten.lenient import Lenient, noted
from ..aten.table import HANDLERS
from ..aten.tidy import tidy
from ..huggingface.seq2seq import plan_run
from ..record.adapter import FakeWorld, faked
from ..record.preserve import OneDevice
from ..record.record import kept_mode, record
from ..semantic.flex import flex_lifted
from ..semantic.lift import lifted
from ..workloads import Run
from .balance import check_folding, check_products
from .blocks import Identity, NotAlikeError, fold
from .layered import in_layers
from .layers import LayerStack, find_stack, needs_every_layer, shortened
from .regions import cut, stack_layers
from .scoped import fold_by_scope
from .unused import count_parameters, with_unused

Planned = Callable[[nn.Module, FakeWorld], Run]


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is traced: a module, what it is called, whether transformers made it, and what to run.

    `assumed` gathers what had to be assumed of the module, for the notes of its graph.
    """

    module: nn.Module
    identity: Identity
    is_transformers: bool
    plan: Planned
    handlers: Mapping[str, Handler]
    assumed: list[str] = field(default_factory=list)


def trace(
    module: nn.Module,
    identity: Identity,
    is_transformers: bool,
    plan: Planned | None = None,
    allow_unpriced: bool = False,
) -> Graph:
    """Return the verified, folded graph of a module, which is left as it was.

    A module is recorded whole and the recording is folded. Of a model of transformers, whose config says the kind of
    each layer, only the distinct layers are recorded, and all where layers that look alike run differently.
    `plan` makes the run of a module whose inputs are not those of a language model. Operators without a rule are an
    error; with `allow_unpriced` they are nodes of which only the bytes count.
    """
    planned = plan or _language_model(identity.workload, is_transformers)
    handlers = Lenient(HANDLERS) if allow_unpriced else HANDLERS
    subject = _Subject(module, identity, is_transformers, planned, handlers)
    graph = with_unused(noted(in_layers(_trace(subject, _stack(subject)))), module)
    verify(graph)
    return replace(graph, notes=(*graph.notes, *dict.fromkeys(subject.assumed)))


def _language_model(workload: Workload, is_transformers: bool) -> Planned:
    return lambda module, world: plan_run(module, world, workload, is_transformers)


def _stack(subject: _Subject, idle: frozenset[str] = frozenset()) -> LayerStack | None:
    """The layers to fold by, all of them recorded where the module looks at its depth; not the idle lists."""
    stack = find_stack(subject.module, idle) if subject.is_transformers else None
    return stack.kept_all() if stack is not None and needs_every_layer(subject.module) else stack


def _trace(subject: _Subject, stack: LayerStack | None, idle: frozenset[str] = frozenset()) -> Graph:
    """Fold by a stack; by another one where no layer of this one runs, as the image encoder of a text model's.

    Code that counts its layers may not run with few of them: then all are recorded.
    """
    try:
        flat, identity = _recorded(subject, stack), subject.identity
    except TraceError:
        if stack is None or stack == stack.kept_all():
            raise
        return _trace(subject, stack.kept_all(), idle)
    constants = tuple(flat.constants.items())
    if stack is None or stack == stack.kept_all():
        made = fold_by_scope(flat, identity)
        check_folding(made, flat)
        return replace(made, constants=constants)
    parts = cut(flat, stack_layers(flat, stack.path, len(stack.kept)))
    if not any(parts.parts[k].nodes for k in range(len(stack.kept))):
        idle |= {stack.path}
        return _trace(subject, _stack(subject, idle), idle)
    try:
        made = fold(parts, stack.classes, stack.kept, identity)
        return replace(made, constants=constants)
    except NotAlikeError:
        return _trace(subject, stack.kept_all(), idle)


def _recorded(subject: _Subject, stack: LayerStack | None) -> Flat:
    world = FakeWorld()
    with ExitStack() as scope:
        if stack is not None:
            scope.enter_context(shortened(subject.module, stack))
        run = scope.enter_context(_prepared(subject, world))
        train = subject.identity.workload is Workload.TRAIN
        recording = record(subject.module, run.inputs, run.call, world, train)
        flat = import_fx(recording.graph, world, recording.results, recording.grads, subject.handlers, recording.calls)
        check_products(recording.graph, flat, world)
        made = tidy(flat)
        made.constants.update(flat.constants)
        made.calls = flat.calls
        return made


@contextmanager
def _prepared(subject: _Subject, world: FakeWorld) -> Iterator[Run]:
    """Everything that surrounds a run: fake parameters, the mode, inputs, and semantic operators in place of calls."""
    module = subject.module
    with ExitStack() as scope:
        scope.enter_context(faked(module, world))
        if subject.is_transformers:
            from ..huggingface.recording import patched

            scope.enter_context(patched(module, subject.identity.spelled_out))
        scope.enter_context(kept_mode(module, subject.identity.workload is Workload.TRAIN))
        run = subject.plan(module, world)
        scope.enter_context(world.mode)
        scope.enter_context(lifted(module, subject.identity.spelled_out))
        scope.enter_context(flex_lifted(module, subject.assumed.append))
        scope.enter_context(OneDevice("cpu"))
        yield run


__all__ = ["count_parameters", "trace"]
