"""What a file of a serving engine may hold, and what it is to the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from ..files.records import NumberRecord
from ..files.system_numbers import Count, Latency, Number, Ratio, Section, filled
from .engine import OF_STACK, Engine, Overheads, Scheduler
from .engine_limits import ENGINE_MOVABLE
from .stack_limits import Movable
from .stack_schema import FitSection, KernelSlowdownSection, SlowdownSection


class Interference(Number):
    """Seconds that a second of other work adds; it may be none."""

    zero_allowed = True
    sane = (1e-3, 10.0)


class SchedulerSection(Section):
    """How requests become steps."""

    batching: Literal["continuous", "static"] | None = None
    chunked_prefill: bool | None = None
    mixed: bool | None = None
    reserve_output: bool | None = None
    max_num_seqs: Count | None = None
    max_batched_tokens: Count | None = None
    block_tokens: Count | None = None
    memory_utilization: Ratio | None = None
    cache_utilization: Ratio | None = None


class OverheadsSection(Section):
    """What the host of an engine adds to its steps."""

    step: Latency | None = None
    sequence: Latency | None = None
    prompt: Latency | None = None
    prompt_token: Latency | None = None
    interference: Interference | None = None


class StackNumbersSection(Section):
    """Numbers of the stack that were fitted for this engine."""

    kernel_slowdown: KernelSlowdownSection | None = None
    slowdown: SlowdownSection | None = None


class EngineFitSection(FitSection):
    """Which numbers of an engine a fit may move, and by which data sets; where one did, how near it came."""

    known: ClassVar[Mapping[str, Movable]] = ENGINE_MOVABLE


class EngineSection(Section):
    """A serving engine."""

    name: str
    stack: str = "default"
    as_of: str = ""
    version_of: str = ""
    versions: str = ""
    since: str = ""
    until: str = ""
    scheduler: SchedulerSection | None = None
    overheads: OverheadsSection | None = None
    stack_numbers: StackNumbersSection | None = None
    fit: EngineFitSection | None = None


def as_engine(section: EngineSection, numbers: tuple[NumberRecord, ...]) -> Engine:
    """Return a checked engine as plain numbers in base units; `numbers` are those of its file."""
    return Engine(
        name=section.name,
        stack=section.stack,
        scheduler=filled(Scheduler(), section.scheduler),
        overheads=filled(Overheads(), section.overheads),
        as_of=section.as_of,
        version_of=section.version_of,
        versions=section.versions,
        since=section.since,
        until=section.until,
        tuned=tuple(_tuned(numbers)),
        sources=numbers,
    )


def _tuned(numbers: tuple[NumberRecord, ...]) -> Iterator[tuple[str, float]]:
    return ((n.path.removeprefix(OF_STACK), n.value_si) for n in numbers if n.path.startswith(OF_STACK))
