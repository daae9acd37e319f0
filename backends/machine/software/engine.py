"""What a serving engine does around the kernels of its stack: how it schedules, and what each step costs its host."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated

from ....ir.records import dataclass
from ..files.kinds import COUNT, INTERFERENCE, LATENCY, RATIO, Key, OneWord, Unwritten
from ..files.records import NumberRecord
from ..system import System
from .phases import PHASES, Phase
from .stack import FitBounds, StackConstants, fitted, up_to_ms
from .stack_limits import moved

# Where a file of an engine keeps numbers of the stack that it runs.
OF_STACK = "stack_numbers."


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How requests become steps.

    Attributes:
        batching: `static`, where a batch runs from its first to its last token, or `continuous`, where requests come
            and go between steps.
        chunked_prefill: prompts are cut so that a step has at most `max_batched_tokens`, and run beside decodes.
        mixed: a step may hold prompts and decodes; else prompts run in steps of their own, before decodes.
        max_num_seqs: most sequences that a replica runs at once.
        max_batched_tokens: most tokens of a step, decodes included.
        block_tokens: tokens of a block of the paged KV cache; what a sequence holds is rounded up to it.
        memory_utilization: share of the device's memory that the engine may take in all.
        cache_utilization: share of what weights and temporaries leave of that, which the KV cache takes.
        reserve_output: room for all tokens of a request is set aside before it starts, so that none is ever evicted.
        dual_batch: halves of a step run in turn where that is quicker, so that exchanges of experts of one half hide
            behind the computation of the other.
    """

    batching: Annotated[str, OneWord(("continuous", "static"))] = "continuous"
    chunked_prefill: bool = True
    mixed: bool = True
    max_num_seqs: Annotated[int, COUNT] = 256
    max_batched_tokens: Annotated[int, COUNT] = 8192
    block_tokens: Annotated[int, COUNT] = 16
    memory_utilization: Annotated[float, RATIO] = 0.9
    cache_utilization: Annotated[float, RATIO] = 1.0
    reserve_output: bool = False
    dual_batch: bool = False


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the host of an engine adds to its steps.

    Attributes:
        step_s: once a step: scheduling, inputs, sampling, output.
        sequence_s: more for each sequence that decodes in the step.
        prompt_s: once a request, before its first token: its request overhead: tokenization, scheduling.
        prompt_token_s: more for each token of its prompt.
        interference: seconds that other prefills add to decodes, over what they take: 1 where all wait for them.
    """

    step_s: Annotated[float, Key("step"), LATENCY] = up_to_ms(50)
    sequence_s: Annotated[float, Key("sequence"), LATENCY] = up_to_ms(1)
    prompt_s: Annotated[float, Key("prompt"), LATENCY] = up_to_ms(500)
    prompt_token_s: Annotated[float, Key("prompt_token"), LATENCY] = up_to_ms(1)
    interference: Annotated[float, INTERFERENCE] = fitted(1.0, FitBounds(0.5, 2.0, rolled=True))


@dataclass(frozen=True, slots=True)
class EngineAccuracy:
    """How near an engine came to measured requests.

    Attributes:
        engine: whose numbers.
        chip: on which they were measured, as people call it.
        num_rows: measured latencies and rates.
        median: of the size of the relative error.
        p90: its 90th percentile.
        judged: whether no number was fitted to them.
    """

    engine: str
    chip: str
    num_rows: int
    median: float
    p90: float
    judged: bool

    def __str__(self) -> str:
        """As `24.9%, p90 42.5% of 49 measured latencies and rates of vllm on H200-SXM-141GB`."""
        fitted = "" if self.judged else ", to which it was fitted"
        return (
            f"median {self.median:.1%}, p90 {self.p90:.1%} of {self.num_rows} measured latencies and rates of "
            f"{self.engine} on {self.chip}{fitted}"
        )


@dataclass(frozen=True, slots=True)
class Engine:
    """A serving engine, as of a version.

    Attributes:
        name: as people call it, `vllm`.
        stack: the software stack whose kernels and messages it runs, a name of the catalogue.
        phases: what it runs, of `train`, `prefill`, `decode` and `serve`.
        scheduler: how requests become steps.
        overheads: what its host adds.
        as_of: the version or month that it describes.
        version_of: the product whose older version it is; empty for what is run today.
        versions: those that it stands for, `0.4 .. 0.6`.
        since: the month in which people began to run them.
        until: the month in which they stopped.
        tuned: numbers of the stack that were fitted for this engine, by their path in a file of a stack.
        accuracy: how near it came to measured requests on the chip; None where it was never fitted there.
        sources: every number of its file as written, with where it comes from.
    """

    name: Annotated[str, Key(needed=True)] = "ideal"
    stack: str = "default"
    phases: tuple[Phase, ...] = PHASES
    scheduler: Scheduler = field(default_factory=Scheduler)
    overheads: Overheads = field(default_factory=Overheads)
    as_of: str = ""
    version_of: str = ""
    versions: str = ""
    since: str = ""
    until: str = ""
    tuned: Annotated[tuple[tuple[str, float], ...], Unwritten()] = ()
    accuracy: Annotated[EngineAccuracy | None, Unwritten()] = field(default=None, compare=False)
    sources: Annotated[tuple[NumberRecord, ...], Unwritten()] = field(default=(), compare=False, repr=False)

    @property
    def is_free(self) -> bool:
        """Whether its host costs nothing."""
        return not any((self.overheads.step_s, self.overheads.sequence_s, self.overheads.prompt_s))

    @property
    def at_random(self) -> Engine:
        """The engine under requests that come at random: decodes wait for all of the prompts beside them.

        An interference below 1 was measured in closed loops of equal requests, which keep step with each other.
        """
        over = self.overheads
        return replace(self, overheads=replace(over, interference=max(over.interference, 1.0)))

    def on(self, stack: StackConstants) -> StackConstants:
        """Return a stack with the numbers that were fitted for this engine in the place of its own.

        >>> Engine(tuned=(("kernel_slowdown.matmul", 1.2),)).on(StackConstants("mine", 0.0, 0.0, 0.0)).kernel_slowdown
        KernelSlowdown(matmul=1.2, attention=1.0, rowwise=1.0, experts=None)
        """
        return moved(stack, dict(self.tuned))

    def under(self, system: System) -> System:
        """Return a system with its stack as this engine runs it: see `on`."""
        if not self.tuned:
            return system
        paths = {f"stack.{path}" for path, _ in self.tuned}
        kept = tuple(number for number in system.sources if number.path not in paths)
        told = (replace(n, path=f"stack.{n.path.removeprefix(OF_STACK)}") for n in self.sources)
        return replace(system, stack=self.on(system.stack), sources=(*kept, *(n for n in told if n.path in paths)))
