"""A module to a folded graph: record, import, tidy, fold; of a model of transformers only the distinct layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from itertools import pairwise

from torch import nn

from ...ir.errors import TraceError
from ...ir.graph import Graph, Workload
from ...ir.records import dataclass
from ...ir.verify import verify
from ..aten.flat import Flat
from ..aten.fx_import import Handler, import_fx
from ..aten.table import HANDLERS, Lenient, noted
from ..aten.tidy import tidy
from ..huggingface.runs import plan_run
from ..record.adapter import FakeWorld, faked, swapped
from ..record.preserve import OneDevice
from ..record.record import kept_mode, record
from ..semantic.flex import flex_lifted
from ..semantic.lift import lifted
from ..workloads import RecordingRun
from .balance import check_folding, check_products, with_unused
from .blocks import Identity, NotAlikeError, fold
from .layered import fold_by_scope, in_layers
from .regions import cut, stack_layers

_SCALARS = (int, float, bool, str, type(None))
_POSITION = ("layer_idx", "layer_id", "layer_number", "idx", "index", "training")


@dataclass(frozen=True, slots=True)
class LayerStack:
    """The longest list of alike layers in a module: where it is, and the class of each layer, in order.

    `kept` are the positions that are recorded: the first and the last of each class, so that a class can be shown to
    be one by comparing two of its members; and neighbours of every two classes that meet, so that each link is seen.
    """

    path: str
    classes: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def num_layers(self) -> int:
        """Layers in the whole stack."""
        return len(self.classes)

    def covers(self, numbers: Iterable[object]) -> bool:
        """Whether these are all numbers of layers."""
        return all(isinstance(n, int) and 0 <= n < self.num_layers for n in numbers)

    def kept_all(self) -> LayerStack:
        """Return the stack with every layer recorded."""
        return LayerStack(self.path, self.classes, tuple(range(self.num_layers)))


def find_stack(module: nn.Module, idle: Collection[str] = ()) -> LayerStack | None:
    """Return the list of alike layers that holds the most parameters, None when the module has no such list.

    `idle` are the paths of lists whose layers do not run.
    """
    best: tuple[int, LayerStack] | None = None
    for path, part in module.named_modules():
        layers = _layers(part)
        if len(layers) < 2 or path in idle:
            continue
        size = sum(p.numel() for p in part.parameters())
        stack = _classed(path, layers)
        if len(set(stack.classes)) <= stack.num_layers // 2 and (best is None or size > best[0]):
            best = (size, stack)
    if best is None:
        return None
    # Whether one table has a part for each layer (Gemma 3n and 4), so that fewer layers would not fit it.
    is_shared_out = any(
        isinstance(getattr(part, "embed_tokens_per_layer", None), nn.Module) for part in module.modules()
    )
    return best[1].kept_all() if is_shared_out else best[1]


def _layers(part: nn.Module) -> Sequence[nn.Module]:
    """The parts of a list, or of a dict whose keys count from zero; none of anything else."""
    if not isinstance(part, nn.ModuleList | nn.Sequential | nn.ModuleDict):
        return ()
    numbered = list(part._modules) == [str(i) for i in range(len(part))]
    return list(part.children()) if numbered else ()


def _classed(path: str, layers: Sequence[nn.Module]) -> LayerStack:
    known: dict[tuple[object, ...], int] = {}
    # The last of the layers that share a parameter: its gradient is the first of a sum, so it runs differently.
    users: dict[int, list[int]] = {}
    for k, layer in enumerate(layers):
        for p in {id(p) for p in layer.parameters()}:
            users.setdefault(p, []).append(k)
    last_user = {places[-1] for places in users.values() if len(places) > 1}
    kinds = ((signature(layer), k in last_user) for k, layer in enumerate(layers))
    classes = tuple(known.setdefault(kind, len(known)) for kind in kinds)
    first = {c: classes.index(c) for c in known.values()}
    last = {c: len(classes) - 1 - classes[::-1].index(c) for c in known.values()}
    return LayerStack(path, classes, _with_links(classes, {*first.values(), *last.values()}))


def _with_links(classes: Sequence[int], ends: Iterable[int]) -> tuple[int, ...]:
    """Add positions until every pair of classes that follow each other also does so among those kept.

    >>> _with_links((0, 1, 0, 2, 0, 1), (0, 1, 3, 4, 5))
    (0, 1, 2, 3, 4, 5)
    >>> _with_links((0, 0, 0, 0), (0, 3))
    (0, 3)
    """
    kept = sorted(set(ends))
    for place, pair in enumerate(pairwise(classes)):
        if pair not in pairwise(classes[k] for k in kept):
            kept = sorted({*kept, place, place + 1})
    meets_all = set(pairwise(classes)) <= set(pairwise(classes[k] for k in kept))
    return tuple(kept) if meets_all else _with_links(classes, kept)


def signature(layer: nn.Module) -> tuple[object, ...]:
    """Return what makes two layers alike: classes, parameter shapes and plain settings of every submodule.

    The position of a layer (`layer_idx` and the like) does not count.
    """
    return tuple(
        (name, type(part).__qualname__, _shapes(part), _settings(part)) for name, part in layer.named_modules()
    )


def _shapes(part: nn.Module) -> tuple[tuple[object, ...], ...]:
    own = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
    return tuple((name, tuple(t.shape), str(t.dtype)) for name, t in own)


def _settings(part: nn.Module) -> tuple[tuple[str, object], ...]:
    found = sorted((k, v) for k, v in vars(part).items() if isinstance(v, _SCALARS))
    return tuple((k, v) for k, v in found if k not in _POSITION and not k.startswith("_"))


def needs_every_layer(module: nn.Module) -> bool:
    """Whether a model of transformers looks at its depth in other ways than by running its layers.

    It works out the inputs of all layers at once (Gemma 3n), or skips layers by their numbers (Llama 3.2 Vision).
    """
    config = getattr(module, "config", None)
    return bool(getattr(config, "hidden_size_per_layer_input", 0) or getattr(config, "cross_attention_layers", None))


@contextmanager
def shortened(module: nn.Module, stack: LayerStack) -> Iterator[None]:
    """Run the module with only the kept layers, numbered anew; everything is put back at the end."""
    parent_path, _, name = stack.path.rpartition(".")
    parent = module.get_submodule(parent_path)
    full = parent.get_submodule(name)
    whole = _layers(full)
    layers = [whole[i] for i in stack.kept]
    short = _like(full, layers)
    with ExitStack() as undo:
        parent._modules[name] = short
        undo.callback(parent._modules.__setitem__, name, full)
        for position, layer in enumerate(layers):
            for part in layer.modules():
                if isinstance(vars(part).get("layer_idx"), int):
                    undo.enter_context(swapped(part, "layer_idx", position))
                # Let what a module looks up by layer be found under the layers' new numbers.
                for key, value in list(vars(part).items()):
                    by_layer = isinstance(value, dict) and key.startswith("layer") and value and stack.covers(value)
                    if by_layer:
                        undo.enter_context(
                            swapped(part, key, {k: value[i] for k, i in enumerate(stack.kept) if i in value})
                        )
        _shorten_config(module, stack, undo)
        yield


def _like(full: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
    if isinstance(full, nn.ModuleDict):
        return nn.ModuleDict({str(i): layer for i, layer in enumerate(layers)})
    return nn.ModuleList(layers) if isinstance(full, nn.ModuleList) else nn.Sequential(*layers)


def _shorten_config(module: nn.Module, stack: LayerStack, undo: ExitStack) -> None:
    """Let the config speak of the kept layers: their number, and every list with one entry a layer."""
    config = getattr(module, "config", None)
    if config is None:
        return
    for key, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == stack.num_layers:
            undo.enter_context(swapped(config, key, [value[i] for i in stack.kept]))
        elif key in ("num_hidden_layers", "n_layer", "num_layers") and value == stack.num_layers:
            undo.enter_context(swapped(config, key, len(stack.kept)))


Planned = Callable[[nn.Module, FakeWorld], RecordingRun]


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
def _prepared(subject: _Subject, world: FakeWorld) -> Iterator[RecordingRun]:
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
