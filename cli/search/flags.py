"""The flags of a search, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from ...ir.errors import UsageError
from ...ir.plan.word import Value
from ...ir.records import dataclass
from ..flags.numbers import Named, Whole
from ..flags.request import PlanCommand
from ..flags.shared import SECTIONS
from ..help import Section
from ..output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, FORMS, Answering, format_flag, output_flag
from ..output.files import write_text
from ..plans.file import is_given
from .axes import REFUSED, SERVING, Asked, check_no_range, is_path, numbers_of, parameter, values_of
from .file import read_space
from .sampling import AT_ONCE, KEYS, Sampling, options

if TYPE_CHECKING:
    from ...report.results.result import Result

# Forms of a front, by the suffix of its file.
FRONTS = (".svg", ".html", ".json", ".txt")
_SPACE = (
    click.Option(
        ["--objective", "objectives"],
        multiple=True,
        metavar="LIST",
        help="Metrics to optimise, in order of priority, as step_time_s,usd_per_mtok; with several, plans on the "
        "Pareto front are marked. Prefix + to maximise or - to minimise a metric that has no direction of its "
        "own. Repeatable.  [default: step_time_s]",
    ),
    click.Option(
        ["--constraint", "constraints"],
        multiple=True,
        metavar="LIMIT",
        help="Limit that a plan must meet: 'peak_mem_bytes<=0.95' (a share of the device), 'step_time_s<=20s', "
        "'mfu>=0.4'. "
        "Repeatable.",
    ),
    click.Option(
        ["--fix"],
        multiple=True,
        metavar="KEY=VALUE",
        help="Fixed value, e.g. tp=8 or zero=1: the same as the flag. Repeatable.",
    ),
    click.Option(
        ["--vary"],
        multiple=True,
        metavar="KEY=VALUES",
        help="Values to search: tp=1,2,4, precision=none,fp8, or `all` values of a flag; a number of the system by its "
        "path or the end of it, as a list or first:last:count: "
        "system.hbm.bandwidth=2TB/s:10TB/s:9. Repeatable; all combinations. A range without steps, 2TB/s..10TB/s or "
        "1us..20us:log, is for an optimiser: see --trials.",
    ),
    click.Option(
        ["--space", "space_file"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Search space as YAML, see `slipstick schema space`; flags override it.",
    ),
)
_RUN = (
    click.Option(["--max-memory"], default="2GiB", show_default=True, metavar="SIZE", help="Memory limit per process."),
    click.Option(
        ["--executor"],
        type=Named(("local", "processes", "ray")),
        default="local",
        show_default=True,
        help="Where plans are evaluated: in this process, in worker processes, or on a Ray cluster.",
    ),
    click.Option(["--jobs"], type=Whole(), metavar="N", help="Worker processes.  [default: one per core]"),
    click.Option(
        ["--address"], metavar="HOST:PORT", help="Address of a running Ray cluster; without it one is started here."
    ),
    click.Option(["--resume"], metavar="RUN", help="Resume a run; finished blocks are not repeated."),
    click.Option(
        ["--runs"],
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder of runs.  [default: that of `slipstick runs list`]",
    ),
    click.Option(
        ["--ledger/--no-ledger"],
        default=True,
        show_default=True,
        help="Save finished blocks of plans, so that the run can be resumed and exported.",
    ),
)
_ANSWER = (
    click.Option(["--top"], type=Whole(min=1), default=20, show_default=True, metavar="N", help="Best plans."),
    click.Option(["--best-plan"], metavar="FILE", help="Write the best plan, for `estimate --plan FILE`."),
    click.Option(
        ["--front"],
        metavar="FILE",
        help="Write the Pareto front, as .svg, .html, .json or .txt.",
    ),
    click.Option(
        ["--why/--no-why"], default=True, show_default=True, help="Explain why the best plan beats the second."
    ),
    format_flag(*FORMS, "svg"),
    output_flag(DRAWN_SUFFIXES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """What a user wants of a search, as typed."""

    objectives: tuple[str, ...]
    constraints: tuple[str, ...]
    fix: tuple[str, ...]
    vary: tuple[str, ...]
    space_file: Path | None
    max_memory: str
    executor: str
    jobs: int | None
    address: str | None
    resume: str | None
    runs: Path | None
    ledger: bool
    top: int
    why: bool


class SearchCommand(Answering, PlanCommand):
    """A verb to which a flag of a plan that is typed is what plans must have; its function receives `wanted`, `asked`.

    MODEL may be left out where a file or a run names it.
    """

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_plan", "front")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS
    serves = True
    more = (
        ("Space", _SPACE),
        ("Optimiser", options(AT_ONCE)),
        ("Run", _RUN),
        ("Answer", _ANSWER),
        ("Servers (--phase serve)", SERVING),
    )

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Name the parameters; none is needed."""
        free = click.Argument(["model"], required=False, default="")
        return [free if param.name == "model" else param for param in super().get_params(ctx)]

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags of a search: all but those that it refuses."""
        heard = [(title, [p for p in params if p.name not in REFUSED]) for title, params in super().sections(ctx)]
        return [(title, params) for title, params in heard if params]

    def form_of(self, said: Mapping[str, object]) -> str:
        """Return the form; a picture of a kind that there is not is refused before anything slow happens."""
        front = said["front"]
        if front is not None and not str(front).endswith(FRONTS):
            raise UsageError(f"--front {front}: the name says the form: {', '.join(FRONTS)}")
        return super().form_of(said)

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the answer, the best plan as a file, the front as a picture."""
        from ...report.results.tables import SearchResult
        from .answer import best_plan_text, front_text

        assert isinstance(result, SearchResult)
        super().deliver(result, form, said)
        if said["best_plan"] is not None:
            write_text(best_plan_text(result.answer), str(said["best_plan"]))
        if said["front"] is not None:
            write_text(front_text(result.front(), str(said["front"])), str(said["front"]))
        return 0

    def answer(self, ctx: click.Context) -> Result:
        """Run the verb's function."""
        return super().answer(self._understood(ctx))

    def _understood(self, ctx: click.Context) -> click.Context:
        """Put what the flags of a search say together in the place of these."""
        typed = typed_flags(ctx)
        wanted = SearchFlags(**{f.name: ctx.params.pop(f.name) for f in fields(SearchFlags)})
        sampling = Sampling(**{name: ctx.params.pop(name) for name in KEYS})
        asked = _asked(wanted, str(ctx.params["model"]), typed)
        ctx.params["asked"] = replace(asked, sampling=sampling.over(asked.sampling))
        ctx.params["wanted"] = wanted
        for option in SERVING:
            ctx.params.pop(str(option.name), None)
        return ctx


def typed_flags(ctx: click.Context) -> dict[str, tuple[Value, ...]]:
    """Return the shared flags that stand on the command line, by parameter, each with its one value."""
    names = [str(option.name) for options in (*SECTIONS.values(), SERVING) for option in options]
    return {name: (_value(ctx.params[name]),) for name in names if name in ctx.params and is_given(ctx, name)}


def _value(value: object) -> Value:
    if value is None or isinstance(value, (int, float, str, tuple)):
        return value
    raise TypeError(f"no value of a flag: {value!r}")


def _asked(wanted: SearchFlags, model: str, typed: dict[str, tuple[Value, ...]]) -> Asked:
    """What the command line asks for, over what its file does; UsageError for what it says twice."""
    flags = {name: value for name, value in typed.items() if name not in ("overrides", "quiet", "cache")}
    if "system" in flags:
        flags["system"] = values_of("system", str(flags["system"][0]))
    paths: dict[str, tuple[str, ...]] = {}
    (given,) = typed.get("overrides", ((),))
    for flag, texts in (
        ("--set", given if isinstance(given, tuple) else ()),
        ("--fix", wanted.fix),
        ("--vary", wanted.vary),
    ):
        for text in texts:
            key, value = _pair(text, flag)
            name = key if is_path(key) else parameter(key)
            if name in paths or name in flags:
                raise UsageError(f"{flag} {text}: '{key}' is said twice, and a plan has one: leave one of them out")
            if is_path(key):
                paths[name] = _numbers(flag, key, value)
            else:
                found = values_of(key, value)
                if flag == "--fix" and (len(found) > 1 or found == ("all",)):
                    raise UsageError(
                        f"--fix {key}={value}: one value is fixed, several are varied: --vary {key}={value}"
                    )
                flags[name] = found
    asked = Asked(model=model, flags=flags, paths=paths, objectives=wanted.objectives, constraints=wanted.constraints)
    below = None if wanted.space_file is None else read_space(wanted.space_file)
    return asked if below is None else asked.over(below)


def _numbers(flag: str, path: str, value: str) -> tuple[str, ...]:
    if flag == "--vary":
        return numbers_of(path, value)
    check_no_range(path, [value])
    return (value,)


def _pair(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise UsageError(f"{flag} {text}: KEY=VALUE, as in tp=8 or system.hbm.bandwidth=2TB/s:10TB/s:9")
    return key.strip(), value.strip()
