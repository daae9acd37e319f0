"""A module that someone already holds, with real weights or without, to a folded graph; it is only read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..ir.errors import (
    InternalError,
    NotBuiltError,
    NotUnderstoodError,
    SlipstickError,
    TraceError,
    UnknownNameError,
    UsageError,
)
from ..ir.graph import Graph, LengthBound, Workload
from ..ir.ops import OpClass, has
from ..ir.types import DType
from .example_inputs import Arguments, Dynamic, Inputs, arguments
from .fold.blocks import Identity
from .fold.trace import trace as record_and_fold
from .huggingface.configs.architectures import speaks
from .huggingface.lengths import SOURCE, require_past, with_source
from .huggingface.recording import hints_on, is_of_transformers, recordable, uncached, what_runs
from .huggingface.runs import plan_fed, plan_run, reads_known
from .leaves import Leaves, put_leaves
from .loss import LabelledInputs, returned
from .modalities.feeding import OF_EACH, Feeds, all_feeds, check_sees
from .record.adapter import FakeWorld, eager
from .record.dtypes import main_dtype
from .record.failures import asks_data
from .record.preserve import desugared, fake_loose_tensors, preserved, refuse_unreadable
from .runs.guards import open_ints
from .runs.model_run import Loss, ModelRun
from .runs.options import TraceOptions
from .runs.roads import Attempt, SizedAttempt, SizeSearch
from .runs.routed import put_routed
from .workloads import RecordingRun

_TABLES = (nn.Embedding, nn.EmbeddingBag)
_NO_LEAVES: Leaves = MappingProxyType({})
# By so many tokens a source is shorter than what is decoded, as an example.
_LESS = 16
_NO_SIZES: Mapping[str, int] = MappingProxyType({})
Say: TypeAlias = Callable[[str], None]
SayingPlan: TypeAlias = Callable[[nn.Module, FakeWorld, Say], RecordingRun]


def trace(
    module: nn.Module,
    inputs: Inputs | None = None,
    dynamic: Dynamic | None = None,
    phase: Workload | str = Workload.TRAIN,
    loss: Loss | None = None,
    leaves: Leaves = _NO_LEAVES,
    caches: Sequence[str] = (),
    name: str | None = None,
    fixed: Mapping[str, int] = _NO_SIZES,
) -> Graph:
    """Return the folded graph of a module that already exists, for one workload; the module is left as it was.

    Nothing is computed and no weight is read: the module runs once on tensors that have sizes only.

    Args:
        module: any `nn.Module`, on any device.
        inputs: example arguments of `forward`: a tensor, a sequence in order, or a mapping by name. Only the sizes and
            types of tensors count; other values are handed on. Left out, the one argument of forward gets token ids
            [batch, seq]. A model of transformers needs none: what it is run on in each phase is known, its caches in
            decode too.
        dynamic: which dims of which arguments are `batch`, `seq` or `kv`, a word or None a dim, by argument name:
            `{"ids": ("batch", "seq")}`. Left out, dim 0 of the first tensor is batch and dim 1 seq (not of images).
        phase: train (forward, loss, backward), prefill (forward) or decode (forward of one new token).
        loss: what makes a scalar of the output in training. Left out, a scalar in the output that is called `loss`, or
            the only one, is the loss; logits of the ids that were given get a cross-entropy; anything else is summed
            up, which a note says.
        leaves: classes whose code cannot be recorded, each with a function that makes a describing module of an
            instance; see `slipstick.leaf`.
        caches: arguments that are KV caches: they live on between steps.
        name: what to call the graph; the class name when left out.
        fixed: sizes that are numbers and not open, as `{"seq": 2048}`. A size that the code makes a number itself is
            fixed at the number that the code names or the example has, and a note says so. Of a model of transformers
            `src`, the tokens that an encoder reads beside a decoder: as many as the decoder's without it.

    Raises:
        TraceError: control flow depends on data, or the module itself fails.
        NotUnderstoodError: decode of a module with attention, none of whose inputs is a cache.
        UsageError: inputs that do not fit `forward`, or a leaf of another size than its module.

    >>> import torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 100))
    >>> str(trace(net, torch.zeros(2, 4, dtype=torch.int64)).num_parameters)
    '1700'
    """
    source = fixed.get(SOURCE) if inputs is None else None
    rest = {n: size for n, size in fixed.items() if n != SOURCE or source is None}
    run = ModelRun(module, inputs, dynamic, loss, leaves, caches, rest)
    return with_source(trace_run(run, TraceOptions(workload=_workload(phase), name=name or "")), source)


def trace_run(run: ModelRun, options: TraceOptions) -> Graph:
    """Return the folded graph of a description; the module is left as it was."""
    module = what_runs(run.module, run.inputs is None)
    refuse_unreadable(module)
    with preserved(module), eager(), recordable(module), desugared(module):
        put_leaves(module, run.leaves)
        if options.workload is Workload.TRAIN:
            _refuse_frozen(module)
        graph = trace_built(run.of(module), options)
    return replace(graph, notes=(*graph.notes, *_unpriced_exchange(module, options.workload)))


def trace_built(run: ModelRun, options: TraceOptions) -> Graph:
    """Return the folded graph of a description whose module is ready to be recorded."""
    with open_ints(run.module), uncached(run.module) if options.workload is Workload.TRAIN else nullcontext():
        graph = _record_run(run, options)
    require_past(graph)
    return graph


def takes_tokens(module: nn.Module, kind: Workload) -> bool:
    """Whether a model of transformers is run as a language model is, on tokens or sound of a known length."""
    return speaks(type(module)) and (kind is Workload.DECODE or reads_known(module))


def _record_run(run: ModelRun, options: TraceOptions) -> Graph:
    """Record as described; without inputs a model of transformers on tokens, then on what its signature asks for."""
    if not is_of_transformers(run.module) or run.inputs is not None:
        return _record_described(run, options)
    if options.images or not takes_tokens(run.module, options.workload):
        return _record_by_signature(run, options)
    on_tokens = _on_tokens(run, options)
    if options.workload is Workload.DECODE or not isinstance(on_tokens.error, TraceError):
        return on_tokens.result()
    by_signature = Attempt().record(partial(_record_by_signature, run, options), SlipstickError)
    return (on_tokens if by_signature.graph is None else by_signature).result()


def _record_by_signature(run: ModelRun, options: TraceOptions) -> Graph:
    """A model of transformers that reads other than tokens: its signature and its config say what.

    It is recorded with open sizes where its code allows that, else with numbers for those that it asks for.
    """
    check_sees(run.module, options.images)
    attempt = Attempt()
    for feeds in all_feeds(run.module, options.workload, options.images, options.sizes.get("batch", 1)):
        attempt = Attempt().record(partial(_record_fed, run, options, feeds), NotUnderstoodError, InternalError)
        if attempt.graph is not None or isinstance(attempt.error, NotBuiltError):
            break  # else the code runs further with numbers for more sizes
    return attempt.result()


def _record_fed(run: ModelRun, options: TraceOptions, feeds: Feeds) -> Graph:
    speaking = options.images > 0 and speaks(type(run.module))
    if feeds.is_plain and not speaking:
        graph = _record_described(replace(run, inputs=feeds.examples(), dynamic=feeds.dynamic), options)
    else:
        graph = _recorded(
            run, options, lambda module, world, say: plan_fed(module, world, options.workload, feeds, speaking, say)
        )
    numbers = feeds.numbers
    fixed = tuple(LengthBound(name, size, size) for name, size in numbers.items())
    told = [f"{n} is fixed at {size}: {OF_EACH}" for n, size in numbers.items()]
    return replace(graph, bounds=(*graph.bounds, *fixed), notes=(*graph.notes, *told, str(feeds)))


def _recorded(run: ModelRun, options: TraceOptions, plan: SayingPlan) -> Graph:
    """Record once and fold, with notes on what had to be said of the loss."""
    module, said = run.module, list[str]()
    identity = Identity(
        options.name or type(module).__name__,
        options.workload,
        main_dtype((p.dtype, p.numel()) for p in module.parameters()),
        hints=hints_on(module),
        spelled_out=options.spelled_out,
    )
    graph = record_and_fold(
        module,
        identity,
        is_of_transformers(module),
        lambda module, world: plan(module, world, said.append),
        options.allow_unpriced,
    )
    losses = dict.fromkeys(f"{note}; name one with {options.loss_by}" for note in said if note)
    return replace(graph, notes=(*graph.notes, *losses))


def _unpriced_exchange(module: nn.Module, kind: Workload) -> Iterator[str]:
    """What replicas send one another inside of a module that the graph of one replica does not have."""
    layers = sum(isinstance(part, nn.SyncBatchNorm) and part.training for part in module.modules())
    if layers and kind is Workload.TRAIN:
        yield (
            f"the exchange of statistics over dp of {layers} SyncBatchNorm layer(s) is not priced: 2 C + 1 numbers of "
            "C channels forward and 2 C backward"
        )


def _refuse_frozen(module: nn.Module) -> None:
    params = list(module.parameters())
    if not any(p.requires_grad for p in params):
        frozen = "is to be trained (requires_grad is False of all)" if params else "exists"
        raise TraceError(
            f"no parameter of {type(module).__name__} {frozen}, so there is no training step; ask for --phase prefill"
        )


def _on_tokens(run: ModelRun, options: TraceOptions) -> Attempt:
    """A live model of transformers: what it takes in each phase is known."""
    if run.fixed:
        raise UsageError(
            f"fixed {dict(run.fixed)}: of a model of transformers all sizes but 'src' stay open; leave it out"
        )

    def record(attempt: SizedAttempt) -> Graph:
        def plan(module: nn.Module, world: FakeWorld, say: Say) -> RecordingRun:
            attempt.enter(world)
            return plan_run(module, world, options.workload, is_transformers=True)

        return _recorded(run, options, plan)

    length = "kv" if options.workload is Workload.DECODE else "seq"
    # Of an encoder beside a decoder: an example of another length than any other, where a short one does not do.
    most = options.sizes.get(length, 0)
    sizes = {**options.sizes, **({SOURCE: most - _LESS} if most > _LESS else {})}
    return SizeSearch(run, record, {"batch", length, SOURCE}, sizes, {}, settable=False).find()


def _record_described(run: ModelRun, options: TraceOptions) -> Graph:
    if options.workload is Workload.DECODE and not run.caches and run.inputs is None:
        raise NotBuiltError(
            "decode needs the KV cache as an input, and none is named: give --input of every argument and --kv-cache "
            "NAME of those that are the cache, return a slipstick.ModelRun with caches, or use a .pt2 or ONNX file "
            "with past inputs"
        )
    given = arguments(run.module, run.inputs, run.dynamic)
    _check_names(run, given)

    def record(attempt: SizedAttempt) -> Graph:
        def plan(module: nn.Module, world: FakeWorld, say: Say) -> RecordingRun:
            attempt.enter(world)
            return _plan_described(module, world, run, options.workload is Workload.TRAIN, given, say)

        return _recorded(run, options, plan)

    examples = {} if run.inputs is None or run.described else given.examples
    search = SizeSearch(run, record, given.examples, options.sizes, examples)
    attempt = search.find()
    error = attempt.error
    if error is not None and asks_data(error):
        routed = put_routed(run.module, options.workload is Workload.TRAIN)
        if not routed.notes:
            raise TraceError(f"{error}{routed.refused}") from error
        graph = search.find().result()
        return replace(graph, notes=(*graph.notes, *routed.notes))
    if run.inputs is None and isinstance(error, TraceError) and (assumed := _assumed(run.module)):
        raise TraceError(f"{error}{assumed}") from error.__cause__
    graph = attempt.result()
    if run.inputs is None and (path := _multiplied(graph)) is not None:
        raise TraceError(f"{path} multiplies token ids by its weights{_assumed(run.module)}")
    return graph


def _multiplied(graph: Graph) -> str | None:
    """Return the path of the first module that multiplies whole numbers, as one does that was fed ids for numbers."""
    for region in graph.regions:
        for node in region.nodes:
            if has(node, OpClass.MATMUL) and any(t.dtype is DType.INT64 for t in region.types(node.inputs[:2])):
                return node.scope or graph.name
    return None


def _assumed(module: nn.Module) -> str:
    """What to say where token ids may have been the wrong thing to run a module on: it looks nothing up by them."""
    parts = [type(part) for part in module.modules()]
    if any(issubclass(k, _TABLES) for k in parts) and not any(issubclass(k, _ConvNd) for k in parts):
        return ""
    name = next(iter(inspect.signature(module.forward).parameters), "x")
    width = next((part.in_features for part in module.modules() if isinstance(part, nn.Linear)), None)
    instead = [f"--input '{name}:bf16[batch,3,224,224]' for images"]
    if width is not None and not any(issubclass(k, _ConvNd) for k in parts):
        instead.insert(0, f"--input '{name}:bf16[batch,seq,{width}]' for vectors")
    return (
        f". No inputs were said, so forward was run on token ids (--input '{name}:int64[batch,seq]'); if it takes "
        f"something else, say what, e.g. {' or '.join(instead)}"
    )


def _check_names(run: ModelRun, given: Arguments) -> None:
    if missing := [c for c in run.caches if c not in given.tensors]:
        raise UnknownNameError.of("cache", missing[0], sorted(given.tensors))
    if unknown := [n for n in run.fixed if n not in given.examples]:
        raise UnknownNameError.of("open size to fix", unknown[0], sorted(given.examples))


def _plan_described(
    module: nn.Module, world: FakeWorld, run: ModelRun, train: bool, given: Arguments, say: Say
) -> RecordingRun:
    """Make fake inputs and labels, and the call to record."""
    fake_loose_tensors(module, world)
    fakes, call = given.made(world, tuple(run.caches))
    with world.mode:
        labelled = LabelledInputs.of(module, fakes)
    inputs = dict(fakes)
    if train and run.loss is None and labelled.labels is not None:
        inputs.setdefault("labels", labelled.labels)

    def record() -> tuple[Tensor, ...]:
        out = call(module)
        if not train:
            return tuple(returned(out))
        if run.loss is not None:
            return (_scalar(run.loss(out)),)
        loss, note = labelled.loss(out)
        say(note)
        return (loss,)

    return RecordingRun(inputs, record)


def _scalar(loss: object) -> Tensor:
    """Return what a user's function made of an output, where it is a loss."""
    if isinstance(loss, Tensor) and loss.dim() == 0:
        return loss
    what = f"a tensor of {loss.dim()} dims" if isinstance(loss, Tensor) else type(loss).__name__
    raise TraceError(f"the loss function returns {what}; a loss is a tensor without dims")


def _workload(phase: Workload | str) -> Workload:
    if phase not in list(Workload):
        raise UnknownNameError.of("phase", str(phase), list(Workload))
    return Workload(phase)
