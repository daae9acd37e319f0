"""A module that someone already holds, with real weights or without, to a folded graph; it is only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn

from ..ir.errors import TraceError, UnknownNameError, UsageError
from ..ir.graph import Graph, Workload
from ..ir.types import DType
from .adapter import FakeWorld, dtype_of, eager
from .blocks import Identity
from .decoding import require_past
from .example_inputs import Arguments, Dynamic, Inputs, arguments
from .huggingface import hints_on
from .leaves import Leaves, put_leaves
from .live_model import is_of_transformers, recordable
from .loss import free_loss, returned
from .preserve import fake_loose_tensors, preserved
from .trace import Planned
from .trace import trace as record_and_fold
from .workloads import Run

Loss = Callable[[object], Tensor]
_NO_LEAVES: Leaves = MappingProxyType({})


def trace(
    module: nn.Module,
    inputs: Inputs | None = None,
    dynamic: Dynamic | None = None,
    phase: Workload | str = Workload.TRAIN,
    loss: Loss | None = None,
    leaves: Leaves = _NO_LEAVES,
    caches: Sequence[str] = (),
    name: str | None = None,
) -> Graph:
    """Return the folded graph of a module that already exists, for one workload; the module is left as it was.

    Nothing is computed and no weight is read: the module runs once on tensors that have sizes only.

    Args:
        module: any `nn.Module`, on any device.
        inputs: example arguments of `forward`: a tensor, a sequence in order, or a mapping by name. Only the sizes and
            types of tensors count; other values are handed on. A model of transformers needs none: what it is run on
            in each phase is known, its caches in decode too.
        dynamic: which dims of which arguments are `batch`, `seq` or `kv`, a word or None a dim, by argument name:
            `{"ids": ("batch", "seq")}`. Left out, dim 0 of the first tensor is batch and dim 1 seq.
        phase: train (forward, loss, backward), prefill (forward) or decode (forward of one new token).
        loss: what makes a scalar of the output in training. Left out, a scalar in the output is the loss, and logits
            get a cross-entropy with labels of their shape.
        leaves: classes whose code cannot be recorded, each with a function that makes a describing module of an
            instance; see `slipstick.leaf`.
        caches: arguments that are KV caches: they live on between steps.
        name: what to call the graph; the class name when left out.

    Raises:
        TraceError: control flow depends on data, a size is used as a plain number, or the module itself fails.
        NotUnderstoodError: decode of a module with attention, none of whose inputs is a cache.
        UsageError: inputs that do not fit `forward`, or a leaf of another size than its module.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 100))
    >>> str(trace(net, torch.zeros(2, 4, dtype=torch.int64)).num_parameters)
    '1700'
    """
    kind = _workload(phase)
    known = is_of_transformers(module)
    plan = None if known and inputs is None else _plan(module, inputs, dynamic, caches, kind, loss)
    with preserved(module), eager(), recordable(module) if known else nullcontext():
        put_leaves(module, leaves)
        identity = Identity(name or type(module).__name__, kind, _dtype(module), hints=hints_on(module))
        graph = record_and_fold(module, identity, is_transformers=known, plan=plan)
    require_past(graph)
    return graph


def _plan(
    module: nn.Module, inputs: Inputs | None, dynamic: Dynamic | None, caches: Sequence[str], kind: Workload,
    loss: Loss | None,
) -> Planned:  # fmt: skip
    if inputs is None:
        raise UsageError(f"{type(module).__name__} needs example inputs: what its forward takes is not known")
    given = arguments(module, inputs, dynamic)
    if missing := [c for c in caches if c not in given.tensors]:
        raise UnknownNameError.of("cache", missing[0], sorted(given.tensors))
    return partial(_run, given=given, caches=tuple(caches), train=kind is Workload.TRAIN, loss=loss)


def _run(
    module: nn.Module, world: FakeWorld, given: Arguments, caches: tuple[str, ...], train: bool, loss: Loss | None
) -> Run:
    fake_loose_tensors(module, world)
    fakes, call = given.made(world, caches)

    def run() -> tuple[Tensor, ...]:
        out = call(module)
        if not train:
            return tuple(returned(out))
        return (free_loss(out, fakes) if loss is None else _scalar(loss(out)),)

    return Run(fakes, run)


def _scalar(made: object) -> Tensor:
    if isinstance(made, Tensor) and made.dim() == 0:
        return made
    what = f"a tensor of {made.dim()} dims" if isinstance(made, Tensor) else type(made).__name__
    raise TraceError(f"the loss function returns {what}; a loss is a tensor without dims")


def _dtype(module: nn.Module) -> DType:
    """The type that most parameters are in; fp32, torch's own default, where there are none."""
    sizes: Counter[torch.dtype] = Counter()
    for p in module.parameters():
        sizes[p.dtype] += p.numel()
    most = sizes.most_common(1)
    return dtype_of(torch.empty(0, dtype=most[0][0])) if most else DType.FP32


def _workload(phase: Workload | str) -> Workload:
    if phase not in list(Workload):
        raise UnknownNameError.of("phase", str(phase), list(Workload))
    return Workload(phase)


__all__ = ["trace"]
