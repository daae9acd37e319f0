"""A user's own module: run eagerly with seeded weights in float64, and its graph on simulated ranks against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.nn.modules.dropout import _DropoutNd

from ...frontend.example_inputs import Arguments, arguments
from ...frontend.huggingface.recording import is_of_transformers
from ...frontend.loss import LabelledInputs, returned
from ...frontend.module import trace_run
from ...frontend.record.failures import first_line, user_line
from ...frontend.record.preserve import FunctionMode
from ...frontend.runs.factories import overlaid, run_from_factory
from ...frontend.runs.model_run import ModelRun
from ...frontend.runs.options import TraceOptions
from ...ir.errors import SlipstickError, UsageError
from ...ir.graph import Graph, Workload
from ...ir.records import dataclass
from ...ir.types import DType
from .call import NotComputedError
from .compare import (
    ComparedModule,
    Difference,
    ModuleResults,
    Verdict,
    compare,
    in_double,
    judged,
    relative,
    with_random_weights,
)
from .layout import LocalSizes
from .serving import StepRunner, compare_phase

_LABELS = "labels"
# Bytes of weights and gradients in float64, the module's and those of all ranks together.
MOST_BYTES = 8_000_000_000
_BYTES = 8


@dataclass(frozen=True)
class OwnModule(ComparedModule):
    """A user's module with weights, its graph, and how it is called."""

    run: ModelRun
    given: Arguments

    @property
    def _trains(self) -> bool:
        return self.graph.workload is Workload.TRAIN

    def inputs(self, batch: int, seq: int) -> Mapping[str, Tensor]:
        """Return random inputs of these sizes, those with values of their own as they are, and labels."""
        sizes = {"batch": batch, "seq": seq, "kv": seq}
        made = torch.Generator().manual_seed(7)
        tensors, _ = self.given.filled(partial(self._input, made, sizes), tuple(self.run.caches))
        if self._trains and self.run.loss is None and _LABELS not in tensors:
            labelled = LabelledInputs.of(self.module, tensors)
            if labelled.labels is not None:
                tensors[_LABELS] = torch.randint(self._fewest, tuple(labelled.labels.shape), generator=made)
        return tensors

    @property
    def _fewest(self) -> int:
        """Rows of the smallest table: an id below that is one of all."""
        tables = (m.num_embeddings for m in self.module.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag))
        return min(tables, default=1)

    def _input(
        self, made: torch.Generator, sizes: Mapping[str, int], name: str, example: Tensor, words: Sequence[str | None]
    ) -> Tensor:
        """Return one input: numbers drawn at random, places and masks as the example has them."""
        padded = (*words, *(None,) * (example.dim() - len(words)))
        dims = tuple(n if w is None else sizes[w] for n, w in zip(example.shape, padded, strict=True))
        if example.is_floating_point():
            return torch.randn(dims, generator=made, dtype=torch.float64)
        if example.device.type != "meta" and example.numel() and bool((example != example.flatten()[0]).any()):
            if any(n > have for n, have in zip(dims, example.shape, strict=True)):
                raise UsageError(
                    f"input '{name}' has values for {list(example.shape)}; --verify-sizes of {dims} is more"
                )
            return example[tuple(slice(n) for n in dims)].contiguous()
        if example.dtype is torch.bool:
            return torch.ones(dims, dtype=torch.bool)
        return torch.randint(self._fewest, dims, generator=made).to(example.dtype)

    def answer(self, inputs: Mapping[str, Tensor]) -> ModuleResults:
        """Run the module forward and backward."""
        with in_double(), ZeroedMemory():
            self.module.zero_grad(set_to_none=True)
            out = self._called(inputs)
            if self.run.loss is not None:
                loss = self.run.loss(out)
            else:
                labelled = LabelledInputs.of(self.module, {n: t for n, t in inputs.items() if n != _LABELS})
                labelled = replace(labelled, labels=inputs[_LABELS] if labelled.labels is not None else None)
                loss, _ = labelled.loss(
                    out, lambda logits, labels: F.cross_entropy(logits.flatten(0, -2), labels.flatten())
                )
            torch.autograd.backward(loss)
        grads = {n: p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        return ModuleResults(loss.detach(), None, grads)

    def results(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Run the module forward, and return every tensor that it returns."""
        with in_double(), ZeroedMemory(), torch.no_grad():
            return list(returned(self._called(inputs)))

    def _called(self, inputs: Mapping[str, Tensor]) -> object:
        _, call = self.given.filled(lambda name, _, __: inputs[name].clone(), tuple(self.run.caches))
        return call(self.module)


class ZeroedMemory(FunctionMode):
    """Fills with zeros what code leaves empty, as the graph is run; refuses gradients through complex numbers.

    A graph takes a conjugate for the number itself: it costs nothing, and is another number.
    """

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run the call, with zeros for what is in new memory."""
        fill = cast("Callable[..., object]", torch.zeros) if func is torch.empty else func
        made = fill(*args, **kwargs)
        if isinstance(made, Tensor) and (made.is_conj() or made.is_neg()):
            raise NotComputedError("a conjugate: the graph has the number itself for it, whose price is the same")
        if isinstance(made, Tensor) and made.is_complex() and made.requires_grad:
            raise NotComputedError("gradients through complex numbers: the graph has no conjugates; ask for prefill")
        return made


def own_subject(spec: str, options: TraceOptions, arguments_: Mapping[str, object], copies: int) -> ComparedModule:
    """Build a factory's module with seeded weights, and record it; this runs the user's code.

    Args:
        spec: the factory, `file.py:function`.
        options: the phase, the type in which the graph is recorded, and what was said of its inputs.
        arguments_: what the factory is called with.
        copies: how many ranks hold a copy of the weights.

    Raises:
        NotComputedError: the module is too large to be run in float64.
    """
    workload = options.workload
    sketch = overlaid(run_from_factory(spec, options.dtype, arguments_), options)
    _check_size(sketch.module, 2 * (1 + copies) if workload is Workload.TRAIN else 1 + copies)
    _drop_nothing(sketch.module)
    graph = trace_run(sketch, replace(options, name=spec.rpartition(":")[2], allow_unpriced=False))
    torch.manual_seed(0)
    with in_double():
        run = overlaid(run_from_factory(spec, DType.FP64, arguments_, "cpu"), replace(options, dtype=DType.FP64))
        module = with_random_weights(run.module, workload)
    _drop_nothing(module)
    if is_of_transformers(module) and run.inputs is None:
        config: object = module.config
        return ComparedModule(graph.name, module, graph, int(getattr(config, "vocab_size", 0)))
    return OwnModule(graph.name, module, graph, 0, run, arguments(module, run.inputs, run.dynamic))


def _drop_nothing(module: nn.Module) -> None:
    """Turn layers of dropout off: what is drawn at random has nothing to be compared with."""
    for part in module.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0


def _check_size(module: nn.Module, copies: int) -> None:
    sizes = {n: p.numel() for n, p in module.named_parameters()}
    needed = sum(sizes.values()) * _BYTES * copies
    if needed > MOST_BYTES:
        largest = max(sizes, key=lambda n: sizes[n])
        raise NotComputedError(
            f"{sum(sizes.values()):,} parameters take {needed / 1e9:.0f} GB in float64 with all ranks, above "
            f"{MOST_BYTES / 1e9:.0f} GB; the largest is '{largest}' "
            f"{list(module.get_parameter(largest).shape)}: give small arguments of the factory with --verify-sizes"
        )


def compare_own(
    subject: ComparedModule, lowered: Graph, degrees: Mapping[str, int], batch: int, length: int
) -> Verdict:
    """Run a lowered graph of a user's module with these degrees (those not named are 1) and compare it with the module.

    NotComputedError where the module itself does not run at these sizes.
    """
    try:
        if not isinstance(subject, OwnModule):
            return compare_phase(subject, lowered, degrees, batch, length)
        inputs = subject.inputs(batch, length)
        if lowered.workload is Workload.TRAIN:
            return compare(subject, lowered, degrees, batch, length, subject.answer(inputs))
        return _compare_results(subject, lowered, degrees, batch, length, inputs)
    except SlipstickError:
        raise
    except Exception as error:  # whatever code of a user raises
        raise NotComputedError(f"the module itself fails at {user_line(error)}: {first_line(error)}") from error


def _compare_results(
    subject: OwnModule,
    lowered: Graph,
    degrees: Mapping[str, int],
    batch: int,
    length: int,
    inputs: Mapping[str, Tensor],
) -> Verdict:
    theirs = subject.results(inputs)

    def run(layout: LocalSizes) -> Verdict:
        found = StepRunner(layout, subject, inputs, degrees.get("pp", 1)).run()
        differences = []
        for k, wanted in enumerate(theirs):
            ours = (
                found.results.get("logits") if k == 0 and "logits" in found.results else found.results.get(f"result{k}")
            )
            differences.append(Difference(f"result {k}", inf if ours is None else relative(ours, wanted.double())))
        return Verdict(tuple(differences), num_nodes=found.num_nodes)

    return judged(lowered, degrees, {"batch": batch, "seq": length, "kv": length}, run)
