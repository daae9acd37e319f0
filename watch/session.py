"""`slipstick.watch(model, system)`: predict the step that a loop runs, and say how it compares while it runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from ..ir.plan import PlanWords
from ..ir.records import dataclass
from .causes import CauseEvidence, causes_of_memory, causes_of_time
from .clock import StepClock
from .observed import ObservedRun, batch_of, named
from .predicted import StepPrediction, predicted
from .reading import WatchedStep

if TYPE_CHECKING:
    from typing import Self

    from ..backends.machine.system import System

_log = logging.getLogger("slipstick.watch")


@dataclass(slots=True)
class RunWatch:
    """A run that is watched, between `start` and `stop`, or within `with`.

    A step ends when an optimizer that holds parameters of the model has stepped; `step()` says so of others. The model
    is recorded once, behind the first step, on rank 0. Whatever fails in it is said, and never stops the run.

    Attributes:
        model: what is trained, wrapped or not.
        system: a machine of the catalogue, the path of a YAML file, or a loaded one.
        plan: what the run does not show of its plan: tp, pp, cp, ep, ZeRO below 3, kernels.
        stack: the software, of the catalogue; None for that of the system.
        every: steps between two readings; 0 for none but those that are asked for.
        say: what is called with each line; None for stderr.
        latest: the last reading.
    """

    model: nn.Module = field(repr=False)
    system: str | System
    plan: PlanWords = field(default_factory=PlanWords)
    stack: str | None = None
    every: int = 10
    say: Callable[[str], None] | None = None
    prediction: StepPrediction | None = None
    latest: WatchedStep | None = None
    num_steps: int = 0
    _run: ObservedRun = field(init=False, repr=False)
    _clock: StepClock = field(init=False, repr=False)
    _hooks: list[RemovableHandle] = field(default_factory=list, repr=False)
    _optimizer: Optimizer | None = field(default=None, repr=False)
    _parameters: frozenset[int] = field(default=frozenset(), repr=False)
    _varied: bool = field(default=False, repr=False)
    _warned: bool = field(default=False, repr=False)

    def start(self, run: ObservedRun | None = None, forwards: bool = True, steps: bool = True) -> Self:
        """Hook into forward passes of the model and steps of optimizers, where a trainer does not tell of them itself.

        Args:
            run: what a trainer knows of the run already.
            forwards: see forward passes by a hook; else `passed` is called.
            steps: see steps by a hook; else `step` is called.
        """
        self._run = run or ObservedRun.of(self.model)
        self._clock = StepClock(self._run.device == "cuda")
        if forwards:
            self._hooks.append(self.model.register_forward_pre_hook(self._before_forward, with_kwargs=True))
        if steps:
            self._parameters = frozenset(map(id, self.model.parameters()))
            self._hooks.append(register_optimizer_step_post_hook(self._after_step))
        return self

    def stop(self) -> None:
        """Read once more and unhook; says so where no step was seen."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if not self.num_steps:
            self._tell("no optimizer step was seen: call step() behind each, or look where the optimizer is")
        else:
            self.read()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def passed(self, inputs: Mapping[str, object]) -> None:
        """Note a forward pass of training with these arguments, by name."""
        self._clock.starts()
        if self.num_steps == 0:
            self._run.passed(inputs)
        elif not self._varied:
            self._varied = batch_of(inputs) != (self._run.micro_batch, self._run.seq_len)

    def step(self, optimizer: Optimizer | None = None) -> None:
        """Note that a step has ended: the first is recorded and predicted, of others times are read now and then."""
        self.num_steps += 1
        if self.num_steps == 1:
            self._predict(optimizer)
            self._clock.restart()
            return
        self._clock.stepped()
        if self.every and (self.num_steps - 1) % self.every == 0:
            self.read()

    def read(self) -> WatchedStep | None:
        """Return what the steps since the last reading took beside the prediction, and say it; None without steps."""
        step_s, wait_s, num = self._clock.taken()
        if not num:
            return self.latest
        allocated = float(torch.cuda.max_memory_allocated()) if self._run.device == "cuda" else None
        reading = WatchedStep(self.num_steps, num, step_s, self.prediction, allocated)
        if self.prediction is not None:
            reading = self._judged(reading, self.prediction, wait_s)
        self.latest = reading
        self._tell(str(reading))
        for cause in reading.causes if not self._warned else ():
            self._tell(f"  likely: {cause}")
        self._warned = self._warned or bool(reading.causes)
        return reading

    def _judged(self, reading: WatchedStep, prediction: StepPrediction, wait_s: float) -> WatchedStep:
        retries = int(torch.cuda.memory_stats().get("num_alloc_retries", 0)) if self._run.device == "cuda" else 0
        at = CauseEvidence(self.model, self._run, prediction, reading.step_s, wait_s, self._varied, retries)
        causes: list[str] = []
        if reading.ratio is not None and not prediction.step_band.holds(reading.ratio):
            causes += causes_of_time(at)
        if reading.memory_ratio is not None and not prediction.memory_band.holds(reading.memory_ratio):
            causes += causes_of_memory(at, reading.allocated_bytes or 0.0)
        return WatchedStep(
            reading.step, reading.num_steps, reading.step_s, prediction, reading.allocated_bytes, tuple(causes)
        )

    def _before_forward(self, module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        # Inside of compiled code nothing may be noted; nothing that infers is part of a step.
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not module.training:
            return
        self.passed(named(module, args, kwargs) if self.num_steps == 0 else {"": args, **kwargs})

    def _after_step(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if self._optimizer is None and any(
            id(p) in self._parameters for group in optimizer.param_groups for p in group["params"]
        ):
            self._optimizer = optimizer
        if optimizer is self._optimizer:
            self.step(optimizer)

    def _predict(self, optimizer: Optimizer | None) -> None:
        """Record and estimate; a run must not end because of what watches it, so that no error leaves."""
        if torch.distributed.is_initialized() and torch.distributed.get_rank():
            return
        try:
            self._run.stepped(self.model, optimizer)
            self.prediction = predicted(self.model, self._run, self.system, self.plan, self.stack)
        except Exception as error:
            self._tell(f"no prediction: {error}")
            _log.debug("no prediction", exc_info=True)
            return
        told = [f"{name} {text}" if name != "step" else text for name, text in self.prediction.answer.summary()]
        self._tell("predicted " + "; ".join(told))

    def _tell(self, line: str) -> None:
        if torch.distributed.is_initialized() and torch.distributed.get_rank():
            return
        if self.say is not None:
            self.say(line)
        else:
            print(f"slipstick: {line}", file=sys.stderr)


def watch(
    model: nn.Module,
    system: str | System,
    plan: PlanWords | None = None,
    stack: str | None = None,
    every: int = 10,
    say: Callable[[str], None] | None = None,
) -> RunWatch:
    """Watch a training loop: `with slipstick.watch(model, "dgx-h100"): ...`.

    Behind the first step the model that is trained is recorded and its step predicted; from then on the time of a step,
    its ratio to the prediction, MFU and memory are said every few steps, with likely causes where the run is further
    off than estimates usually are.

    Args:
        model: what is trained; wrapped by DDP, `fully_shard` or `torch.compile`, or as it is.
        system: a machine of the catalogue, the path of a YAML file, or what `load_system` returns.
        plan: what the run does not show: `PlanWords(tp=8, sp=True)`. Ranks, ZeRO 3, batch, length, recomputation and
            types of optimizer states are seen.
        stack: the software, as `torchtitan`.
        every: steps between two readings.
        say: what is called with each line, in the place of stderr.
    """
    return RunWatch(model, system, plan or PlanWords(), stack, every, say)


class CallbackWatch:
    """What a callback of a trainer is given, beside the base class of its framework: `RunWatch`'s, but the model."""

    def __init__(
        self,
        system: str | System,
        plan: PlanWords | None = None,
        stack: str | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self.system, self.plan, self.stack, self.say = system, plan or PlanWords(), stack, say
        self.watch: RunWatch | None = None

    def watching(self, model: nn.Module) -> RunWatch:
        """Return a watch that reads when the trainer logs, to be started."""
        self.watch = RunWatch(model, self.system, self.plan, self.stack, 0, self.say)
        return self.watch
