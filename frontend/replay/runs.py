"""A program to a folded graph: run on fake tensors for one workload, imported, tidied and folded by its scopes.

A node that reads a parameter is of the module that owns it. Another one is of the innermost module that holds both what
comes before it and what comes after: attention, between the projections of a layer, is of that layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, fx

from ...ir.errors import NotUnderstoodError, UnsupportedOpError
from ...ir.graph import Graph, Workload
from ...ir.ops import Trait, has
from ...ir.records import dataclass
from ...ir.verify import verify
from ..aten.flat import Flat
from ..aten.fx_import import Handler, import_fx
from ..aten.table import HANDLERS, Lenient, noted
from ..aten.tidy import tidy
from ..derive import forward_of, training
from ..fold.balance import check_folding, check_products
from ..fold.blocks import Identity
from ..fold.layered import fold_by_scope, in_layers
from ..huggingface.lengths import require_past
from ..recognise import recognise
from ..record.adapter import FakeWorld, faked
from ..record.preserve import Contexts, one_context
from ..record.record import Recorder, Tensors, kept_mode, of_loss, record_with
from ..runs.guards import GuardRanges
from ..semantic.lift import lifted
from .calls import Calls
from .interpreter import Replay, scope_of
from .joint import (
    LABELS,
    JointRecorder,
    arguments,
    backward_nodes,
    labels_for,
    loss_among,
    of_results,
    split_outputs,
    tensors_of,
)
from .program import HeldInput, ReadGraph, ReplayProgram
from .sizes import BATCH, NAMES, SEQ, Naming, hints_for, longest, name_sizes

_NUMBERED = re.compile(r"^.*?(?:^|\.)[0-9]+(?=\.|$)")


def guessed_scopes(program: ReplayProgram, backward: frozenset[fx.Node]) -> Mapping[fx.Node, str]:
    """Return a path for each node of a graph, empty where nothing is known; `backward` nodes have their own only."""
    calls = [n for n in program.graph.graph.nodes if n.op.startswith("call")]
    # The module that owns the parameter behind a node.
    placeholders = [n for n in program.graph.graph.nodes if n.op == "placeholder"]
    paths = {n: s.path for n, s in zip(placeholders, program.sources, strict=False) if isinstance(s, HeldInput)}
    known = dict(program.root.named_parameters(remove_duplicate=False))
    paths |= {n: str(n.target) for n in program.graph.graph.nodes if n.op == "get_attr" and str(n.target) in known}
    owner = {n: path.rpartition(".")[0] for n, path in paths.items() if "." in path}
    own: dict[fx.Node, str] = {}
    for node in calls:
        owners = [owner[s] for s in node.all_input_nodes if s in owner]
        if owners:
            own[node] = owners[0]
        if owners and len(owners) == len(node.all_input_nodes):
            owner[node] = owners[0]  # a parameter turned over or cast is one still
    nodes = [n for n in calls if n not in backward]
    before = _spread(nodes, own, along=True)
    after = _spread(nodes[::-1], own, along=False)
    return own | {n: _between(before[n], after[n]) for n in nodes if n not in own}


def _spread(nodes: list[fx.Node], own: Mapping[fx.Node, str], along: bool) -> dict[fx.Node, str]:
    """Return, for each node, the path of the nearest node that has one: among its inputs, or among its readers."""
    place = {n: k for k, n in enumerate(nodes)}
    found: dict[fx.Node, str] = {}
    for node in nodes:
        near = [n for n in (node.all_input_nodes if along else node.users) if n in place]
        near.sort(key=lambda n: place[n])
        found[node] = next((path for n in reversed(near) if (path := own.get(n) or found.get(n, ""))), "")
    return found


def _between(a: str, b: str) -> str:
    """Return the innermost module that holds both; between two layers, and behind the last one, the layer before.

    >>> _between("layers.0.qkv", "layers.0.out"), _between("layers.2.down", "head")
    ('layers.0', 'layers.2')
    """
    shared = _common(a, b)
    numbered = _NUMBERED.match(a)
    if numbered is not None and _NUMBERED.match(shared) is None:
        return numbered.group()
    return shared


def _common(a: str, b: str) -> str:
    shared: list[str] = []
    for x, y in zip(a.split("."), b.split("."), strict=False):
        if x != y:
            break
        shared.append(x)
    return ".".join(shared)


_GUESSED = "module paths are taken from the names of parameters"
_Backward: TypeAlias = Callable[[Recorder, Tensors], tuple[Tensors, Mapping[str, Tensor]]]


def graph_of(
    program: ReplayProgram,
    workload: Workload,
    dims: Mapping[str, str | int] | None = None,
    is_part: bool = False,
    allow_unpriced: bool = False,
) -> Graph:
    """Return the verified, folded graph of a program.

    In training the first output must be logits or a scalar loss; the loss of logits and the backward pass are added. A
    part of a model trains from the gradients of its results, which are inputs then. A program that holds its backward
    pass is taken as it is.
    """
    backward = backward_nodes(program)
    if backward and workload is not Workload.TRAIN:
        raise NotUnderstoodError(f"'{program.name}' holds a backward pass, so it is a training graph, not {workload}")
    naming = name_sizes(program, workload, dims)
    handlers = Lenient(HANDLERS) if allow_unpriced else HANDLERS
    # Fake tensors; an operator of a file that has no rule for them is refused, not tried on real ones.
    world = FakeWorld()
    world.mode.allow_fallback_kernels = not isinstance(program.graph, ReadGraph)
    run = _Run(program, naming, hints_for(program), world, backward, _scopes(program, backward), handlers)
    flat = run.joint() if backward else run.forward() if workload is not Workload.TRAIN else run.trained(is_part)
    notes = (*program.notes, naming.note, _fixed_note(program, naming), _GUESSED if run.scopes else "")
    identity = Identity(program.name, workload, program.dtype, tuple(n for n in notes if n), longest(program, naming))
    # The lengths that the program holds for by what was asked of its sizes when it was made.
    names = {name: str(meant) for name, meant in naming.meaning.items() if str(meant) in NAMES}
    asked = [c.renamed(names) for c in program.asked if all(s in names for s in c.sizes)]
    held = (
        *GuardRanges({names[n]: size for n, size in program.examples.items() if n in names}).bounds(asked),
        *run.world.bounds(),
    )
    folded = fold_by_scope(flat, identity)
    check_folding(folded, flat)
    graph = replace(noted(in_layers(folded)), bounds=held)
    verify(graph)
    require_past(graph)
    return graph


def _fixed_note(program: ReplayProgram, naming: Naming) -> str:
    known = {name for t in program.tensors for d in naming.dims(t) if not isinstance(d, int) for name in d.symbols}
    fixed = [t for t in program.tensors if not known.intersection((BATCH, SEQ)) and len(t.dims) > 1]
    if not fixed:
        return ""
    shape = ", ".join(map(str, fixed[0].dims))
    return f"the sizes are fixed: {fixed[0].name} is [{shape}]; a plan must be for as many tokens"


@dataclass
class _Run:
    """One run of a program under a recorder."""

    program: ReplayProgram
    naming: Naming
    hints: Mapping[str, int]
    world: FakeWorld
    backward: frozenset[fx.Node]
    scopes: Mapping[fx.Node, str]
    handlers: Mapping[str, Handler]
    carried: Tensors = ()

    def forward(self) -> Flat:
        """Run as it is, and put together what is spelled out in small operators."""
        return recognise(self._flat({}, None))

    def joint(self) -> Flat:
        """Run forward and backward, which both are in the graph."""

        def backward(recorder: Recorder, results: Tensors) -> tuple[Tensors, Mapping[str, Tensor]]:
            return split_outputs(self.program, results, recorder)

        return self._flat({}, backward)

    def trained(self, is_part: bool) -> Flat:
        """Run forward and backward from the loss, or from the gradients of the results of a part."""

        def backward(recorder: Recorder, results: Tensors) -> tuple[Tensors, Mapping[str, Tensor]]:
            del recorder
            if is_part and not any(t.dim() == 0 and t.requires_grad for t in results):
                return of_results(self.program.root, results, self.carried)
            return of_loss(self.program.root, results)

        labels = {} if is_part else {LABELS: labels_for(self.program, self.world, self.naming, self.hints)}
        flat = self._flat(labels, backward, is_part)
        return flat if is_part else _put_together(flat)

    def _flat(self, more: Mapping[str, Tensor], backward: _Backward | None, is_part: bool = False) -> Flat:
        program, world = self.program, self.world
        with ExitStack() as scope:
            scope.enter_context(_ready(program, world, backward is not None))
            args, inputs = arguments(program, world, self.naming, self.hints)
            # Let gradients reach the inputs that may carry them.
            self.carried = (
                tuple(t.requires_grad_() for t in inputs.values() if t.dtype.is_floating_point) if is_part else ()
            )
            given = {**inputs, **more}
            joint = partial(JointRecorder, backward=self.backward) if self.backward else Recorder
            recorder = joint(program.root, given, world)
            calls = Calls(recorder, world, self.hints)

            def run() -> Tensors:
                with calls, torch.set_grad_enabled(torch.is_grad_enabled() and not self.backward):
                    found = tensors_of(Replay(program.graph, recorder, self.scopes).run(*args), program)
                recorder.scopes[-1] = ""
                return (loss_among(found, more[LABELS]),) if LABELS in more else found

            scope.enter_context(world.mode)
            scope.enter_context(lifted(program.root))
            gradients = None if backward is None else partial(backward, recorder)
            recording = record_with(recorder, program.root, run, world, gradients)
            flat = import_fx(recording.graph, world, recording.results, recording.grads, self.handlers)
            check_products(recording.graph, flat, world)
            return tidy(flat)


def _put_together(flat: Flat) -> Flat:
    """Return the training graph with what was spelled out in small operators as one each, forward and backward.

    What autograd recorded stays where nothing was spelled out, and where an operator has no backward rule of ours.
    """
    forward = forward_of(flat)
    fused = recognise(forward)
    if _num_fused(fused) == _num_fused(forward):
        return flat
    try:
        return training(fused)
    except UnsupportedOpError:
        return flat


def _num_fused(flat: Flat) -> int:
    fused = (Trait.ATTENDS, Trait.NORMALISES_ROWS, Trait.ROTATES, Trait.SOFTMAX)
    return sum(has(n, *fused, backward=False) for n in flat.nodes)


def _scopes(program: ReplayProgram, backward: frozenset[fx.Node]) -> Mapping[fx.Node, str]:
    """Paths from the names of parameters, for a graph that has none of its own."""
    if any(scope_of(n) for n in program.graph.graph.nodes):
        return {}
    found = guessed_scopes(program, backward)
    return found if any(found.values()) else {}


@one_context
def _ready(program: ReplayProgram, world: FakeWorld, train: bool) -> Contexts:
    """Parameters are fake for a while, those of the graph's own modules too."""
    yield faked(program.root, world)
    if program.graph is not program.root:
        yield faked(program.graph, world)
    yield kept_mode(program.root, train)
