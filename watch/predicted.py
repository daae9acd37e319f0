"""The prediction of a run: its own module recorded, its own plan, a system of the catalogue."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..backends.machine.load import load_system
from ..driver.estimate import Estimate, estimate
from ..driver.uncertainty.answers import step_bands
from ..driver.uncertainty.bands import Band
from ..frontend.huggingface.recording import is_of_transformers
from ..frontend.module import trace
from ..ir.errors import SlipstickError, UsageError
from ..ir.graph import Graph
from ..ir.plan import Plan, PlanWords, plan_of
from ..ir.plan.word import changed
from ..ir.records import dataclass
from ..ir.sizes.fixed_sizes import counts_tokens
from .bare import bare, unwrapped
from .observed import ObservedRun

if TYPE_CHECKING:
    from ..backends.machine.software.stack import StackConstants
    from ..backends.machine.system import System


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """What was predicted of a step.

    Attributes:
        answer: the whole estimate.
        step_s: seconds of a step.
        mfu: model FLOPs over those of the peak; None where the model has none.
        allocated_bytes: what tensors hold at the peak: all but what software reserves beside them.
        step_band: where measured step times lie around predicted ones, by what is known of such machines and software.
        memory_band: the same of memory.
    """

    answer: Estimate
    step_s: float
    mfu: float | None
    allocated_bytes: float
    step_band: Band
    memory_band: Band

    @classmethod
    def of(cls, answer: Estimate) -> StepPrediction:
        """Take from an estimate what a run can be compared with."""
        bands, metrics = step_bands(answer), answer.metrics
        held = sum(size for name, size in answer.memory_bytes.items() if name != "reserved")
        step_band, memory_band = bands["step_time_s"], bands["peak_mem_bytes"]
        return cls(answer, metrics["step_time_s"], metrics.get("mfu"), held, step_band, memory_band)


class CalledMethod(nn.Module):
    """A method of a module as a forward pass: of a batch, with 0 for the number of the batch where it takes one."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module, self.method = module, method
        self.takes_number = len(inspect.signature(getattr(module, method)).parameters) > 1

    def forward(self, batch: object) -> object:
        """Call the method."""
        method = getattr(self.module, self.method)
        return method(batch, 0) if self.takes_number else method(batch)


def predicted(
    model: nn.Module, run: ObservedRun, system: str | System, said: PlanWords, stack: str | None = None
) -> StepPrediction:
    """Record the module that a run trains, and estimate its step.

    What was said of the plan overrides what the run shows; sizes that neither says are those of the first batch.
    SlipstickError for a module that cannot be recorded, and for a plan that is not legal.
    """
    machine = load_system(system, stack=stack) if isinstance(system, str) else system
    graph = recorded(model, run)
    return StepPrediction.of(estimate(graph, machine, _plan(graph, run, said, machine.stack)))


def recorded(model: nn.Module, run: ObservedRun) -> Graph:
    """Return the training graph of a module; one of transformers is run on what it is known to take."""
    inner = unwrapped(model)
    of_transformers = any(is_of_transformers(part) for part in inner.modules())
    copy = bare(inner, run.compute_dtype, keeps_buffers=of_transformers)
    name = type(inner).__name__.removeprefix("FSDP")
    if run.inputs is None:
        if of_transformers:
            return trace(copy, name=name)
        raise UsageError("no forward pass was seen, so that the inputs of the model are not known")
    inputs = {key: _cast(value, run) for key, value in run.inputs.items()}
    if run.calls != "forward":
        return trace(CalledMethod(copy, run.calls), inputs, name=name)
    if not of_transformers:
        return trace(copy, inputs, name=name)
    try:
        return trace(copy, name=name)
    except SlipstickError:
        return trace(copy, inputs, name=name)


def _cast(value: object, run: ObservedRun) -> object:
    """Return inputs as the run computes on them; at any depth."""
    if isinstance(value, Tensor):
        return value.to(run.compute_dtype) if run.compute_dtype and value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)([_cast(one, run) for one in value])
    return {name: _cast(one, run) for name, one in value.items()} if isinstance(value, Mapping) else value


def _plan(graph: Graph, run: ObservedRun, said: PlanWords, stack: StackConstants) -> Plan:
    usual = PlanWords()
    own = {f.name: getattr(said, f.name) for f in fields(PlanWords)}
    given = {name: value for name, value in own.items() if value != getattr(usual, name)}
    words = changed(usual, {"micro_batch": run.micro_batch, **run.words, **given})
    if "seq_len" not in given and run.seq_len is not None and counts_tokens(graph):
        words = changed(words, {"seq_len": run.seq_len})
    ranks = words.num_devices // (words.tp * words.pp * words.cp)
    batch = words.global_batch or words.micro_batch * max(run.num_micro_batches, 1) * max(words.dp or ranks, 1)
    return plan_of(changed(words, {"num_gpus": words.num_devices, "global_batch": batch}), stack)
