"""Request records: model, machine, plan, run and lowering options."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from ..ir.errors import UsageError
from ..ir.plan.word import changed
from ..ir.plan.words import WORDS, PlanWords, words_said
from ..ir.records import dataclass
from .run_words import RunWords
from .sources import VerbArguments
from .talk import Progress, silent_progress

if TYPE_CHECKING:
    from ..backends.machine.system import System
    from ..ir.graph import Graph

R = TypeVar("R", bound="Request")
_OF_ENGINE = "engine."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """The model, and what it does not say itself; from Python it may be a graph, which then has a name alone.

    `loaded` keeps the graphs that were loaded of it, for requests that differ in what no graph shows.
    """

    model: str
    dtype: str
    images: int
    dims: tuple[str, ...]
    inputs: tuple[str, ...]
    loss: str | None
    fixed: tuple[str, ...]
    leaves: tuple[str, ...]
    caches: tuple[str, ...]
    allow_unpriced: bool
    graph: Graph | None = None
    recorded: dict[object, Graph] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRequest:
    """The system with its software, constants and prices, and numbers that are set anew.

    From Python it may be `loaded` already; nothing of it is set anew then. What no flag says of it: `served_by`, the
    engine that runs a single step, and `assumed`, the flags that nobody typed and that choose its software.
    """

    system: str | None
    stack: str | None
    as_of: str | None
    calibration: str | None
    prices: str | None
    year: int | None
    cuda_graph: bool | None
    overrides: tuple[str, ...]
    loaded: System | None = None
    served_by: str | None = None
    assumed: tuple[str, ...] = ()

    @property
    def book(self) -> str | None:
        """The price book with its year; None for that of the system."""
        from ..backends.prices.book import at_year

        return at_year(self.prices, self.year)

    def dated(self, software: str) -> str:
        """Return a stack or an engine as people ran it in the month asked for; one with a version of its own as it is.

        UsageError for a month that is none.
        """
        from ..backends.machine.files.versions import AT, month_of

        if self.as_of is None:
            return software
        month = month_of(self.as_of)
        if month is None:
            raise UsageError(f"--as-of {self.as_of}: give a year, a month or a day, as 2024, 2024-06 or 2024-06-30")
        plain = AT not in software and not software.endswith((".yaml", ".yml"))
        return f"{software}{AT}{month}" if plain else software

    @property
    def assignments(self) -> tuple[str, ...]:
        """Numbers of the system that are set anew, as KEY=VALUE; without those of the engine that runs a step."""
        return (*self.graphs, *(self.overrides if self.served_by is None else self.of_system))

    @property
    def of_system(self) -> tuple[str, ...]:
        """What --set says of all but the engine."""
        return tuple(text for text in self.overrides if not text.startswith(_OF_ENGINE))

    @property
    def of_engine(self) -> tuple[str, ...]:
        """Numbers of the engine that are set anew, as `--set engine.KEY=VALUE` has them."""
        return tuple(text.removeprefix(_OF_ENGINE) for text in self.overrides if text.startswith(_OF_ENGINE))

    @property
    def graphs(self) -> tuple[str, ...]:
        """What was said of captured graphs, as such an assignment."""
        return () if self.cuda_graph is None else (f"stack.cuda_graph={str(self.cuda_graph).lower()}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """Passes of the lowering, and dumps of graphs."""

    passes: str | None
    stop_after: str | None
    dump_after: str | None
    dump_dir: str
    time_passes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asked for, as typed; nothing is checked here that needs the model or the system."""

    source: ModelSource
    words: PlanWords
    machine: MachineRequest
    run: RunWords
    compiler: Compiler
    basis: str
    rent: bool
    flops_convention: str
    cache: bool
    quiet: bool
    arguments: VerbArguments = field(default_factory=VerbArguments, compare=False, repr=False)

    @classmethod
    def of(cls: type[R], arguments: VerbArguments) -> R:
        """Return what arguments say."""
        words = words_said(arguments.values(WORDS))
        parts: dict[str, object] = {name: arguments.take(record) for name, record in _PARTS.items()}
        own = arguments.values(tuple(f.name for f in fields(cls) if f.name not in _PARTS))
        said = {**own, **parts, **cls.parts_of(arguments), "words": words, "arguments": arguments}
        found = cls(**said)  # type: ignore[arg-type]
        stack = found.machine.stack
        return found if stack is None else found.said({"stack": found.machine.dated(stack)})

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return further records of a request, by their fields."""
        return {}

    def said(self: R, values: Mapping[str, object]) -> R:
        """Return the request with other values of some words, by the fields of requests."""
        words = {name: value for name, value in values.items() if name in WORDS}
        found: dict[str, object] = {"words": words_said(words, self.words)}
        for name, record in _PARTS.items():
            own = {f.name: values[f.name] for f in fields(record) if f.name in values}
            found[name] = changed(getattr(self, name), own)
        own = {f.name: values[f.name] for f in fields(self) if f.name in values}
        return changed(self, {**found, **own})

    def report(self, line: str) -> None:
        """Say how far it is, where that is wanted."""
        if not self.quiet:
            self.arguments.talk.say(line)

    def progress(self, num_candidates: int) -> AbstractContextManager[Progress]:
        """Return what shows how far a search of so many candidates is."""
        return silent_progress(num_candidates) if self.quiet else self.arguments.talk.progress(num_candidates)


_PARTS: Mapping[str, type] = MappingProxyType(
    {"source": ModelSource, "machine": MachineRequest, "run": RunWords, "compiler": Compiler}
)
