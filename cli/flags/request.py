"""What the flags that verbs share say together: one `Request` a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import click

from ...ir.errors import UsageError
from ...ir.plan.word import changed
from ...ir.plan.words import WORDS, PlanWords, words_said
from ...ir.records import dataclass
from ..help import HELP_ALL, Section, is_of_topic, write_options
from ..plans.file import add_listed, plan_file_flag
from ..plans.launch import ENV, FROM, use_launch
from .run import RunWords
from .shared import MODEL, SECTIONS
from .talk import watched

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...ir.graph import Graph

PLAN_FILE = plan_file_flag()


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
        from ...backends.prices.book import at_year

        return at_year(self.prices, self.year)

    def dated(self, software: str) -> str:
        """Return a stack or an engine as people ran it in the month asked for; one with a version of its own as it is.

        UsageError for a month that is none.
        """
        from ...backends.machine.files.versions import AT, month_of

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
    """How a graph is lowered, and what is shown of it."""

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

    @classmethod
    def of(cls, params: dict[str, object]) -> Request:
        """Return what flags say; those that verbs share are taken out of `params`."""
        words = words_said({name: params.pop(name) for name in WORDS if name in params})
        parts = {name: _taken(record, params) for name, record in _PARTS.items()}
        own = {f.name: params.pop(f.name) for f in fields(cls) if f.name in params}
        found = cls(words=words, **parts, **own)  # type: ignore[arg-type]
        stack = found.machine.stack
        return found if stack is None else found.said({"stack": found.machine.dated(stack)})

    def said(self, values: Mapping[str, object]) -> Request:
        """Return the request with other values of some flags, by their parameters."""
        words = {name: value for name, value in values.items() if name in WORDS}
        found: dict[str, object] = {"words": words_said(words, self.words)}
        for name, record in _PARTS.items():
            own = {f.name: values[f.name] for f in fields(record) if f.name in values}
            found[name] = changed(getattr(self, name), own)
        own = {f.name: values[f.name] for f in fields(self) if f.name in values}
        return changed(self, {**found, **own})


_PARTS: Mapping[str, type] = MappingProxyType(
    {"source": ModelSource, "machine": MachineRequest, "run": RunWords, "compiler": Compiler}
)


def _taken(record: type, params: dict[str, object]) -> object:
    """Return a record of parameters, which are taken out."""
    return record(**{f.name: params.pop(f.name) for f in fields(record) if f.name in params})


class PlanCommand(click.Command):
    """A verb that takes MODEL, a plan file and all shared flags; its function receives them as one `request`.

    A subclass may have more sections of flags of its own.
    """

    serves: ClassVar[bool] = False
    more: ClassVar[tuple[tuple[str, tuple[click.Option, ...]], ...]] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Name the shared parameters, then the verb's own."""
        shared = [flag for _, flags in self._shared() for flag in flags]
        own = [flag for _, flags in self.more for flag in flags]
        return [MODEL, PLAN_FILE, FROM, ENV, *shared, *own, HELP_ALL, *super().get_params(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags, over a launch that one of them names."""
        counted = use_launch(ctx, args)
        rest = super().parse_args(ctx, args)
        ctx.params |= counted
        return rest

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function."""
        shown = watched(ctx)
        add_listed(ctx)
        request = Request.of(ctx.params)
        if request.words.phase == "serve" and not self.serves:
            told = (
                "a server runs two graphs: ask for train, prefill or decode; `slipstick estimate` answers for servers"
            )
            raise UsageError(f"--phase serve: {told}")
        with shown:
            ctx.params["request"] = request
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usual flags, or all: the verb's own first, then the shared ones by subject."""
        write_options(ctx, formatter, self.sections(ctx))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the verb does, but for the help of a topic."""
        if not is_of_topic(ctx):
            super().format_help_text(ctx, formatter)

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags of the verb, its own first, then the shared ones by subject."""
        own = ("Options", [PLAN_FILE, FROM, ENV, *super().get_params(ctx), HELP_ALL])
        return [own, *self.more, *self._shared()]

    def _shared(self) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield the shared flags by subject, without those in whose place the verb has one of its own."""
        own = {name for _, flags in self.more for flag in flags for name in flag.opts}
        for subject, flags in SECTIONS.items():
            yield subject, [flag for flag in flags if own.isdisjoint(flag.opts)]
