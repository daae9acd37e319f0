"""Verbs that make a result: the command line writes it in a form, Python gets it as it is."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.plans.own_defaults import used_defaults
from ...app.sources import VerbArguments
from ...ir.errors import InfeasibleError, UsageError
from ...ir.text.shown import shown
from ..flags.command import arguments_of, own_layer
from ..flags.numbers import Named
from ..flags.settings import words_of
from ..flags.talk import talk_flags, watched
from ..help import Section
from .files import columns, write_text, writing

if TYPE_CHECKING:
    from ...report.results.result import Result

# Forms of a result; the first is what people see, and what a suffix that says none is not.
FORMS = ("table", "json", "csv", "md", "html", "parquet")
# Where a context keeps its command line.
_TYPED, _COLOR, _PICTURES = "slipstick.typed", "slipstick.color", "slipstick.plot"


def format_flag(*forms: str) -> click.Option:
    """Return the flag that says a form."""
    return click.Option(
        ["--format", "form"],
        type=Named(forms or FORMS),
        help="Output format.  [default: that of the suffix of -o, else table]",
    )


# Forms of verbs whose answers have charts; PNG is no text, so that only a suffix says it.
DRAWN_FORMS = (*FORMS, "svg", "png")
DRAWN_SUFFIXES = ".json, .csv, .parquet, .md, .html, .svg or .png for a chart, or .txt for the table"


def output_flag(suffixes: str = ".json, .csv, .parquet, .md, .html, or .txt for the table") -> click.Option:
    """Return the flag that says where the answer goes, and which suffixes say its form."""
    return click.Option(
        ["-o", "--output"],
        default="-",
        show_default=True,
        metavar="FILE",
        help=f"Output file, format by suffix: {suffixes} (.gz may follow); - is stdout.",
    )


COLOR = click.Option(
    ["--color"],
    type=Named(("auto", "always", "never")),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=lambda ctx, _, value: ctx.meta.__setitem__(_COLOR, value),
    help="Colors and bold text; auto: on a terminal, unless NO_COLOR is set, or anywhere where FORCE_COLOR is.",
)


PICTURES = click.Option(
    ["--plot/--no-plot"],
    default=None,
    expose_value=False,
    callback=lambda ctx, _, value: ctx.meta.__setitem__(_PICTURES, value),
    help="Pictures in characters below the table.  [default: on a terminal]",
)


TALK = talk_flags(told=False)


def wants_color(ctx: click.Context | None, is_terminal: bool, environment: Mapping[str, str]) -> bool:
    """Whether a screen has colors: as --color says, else NO_COLOR, FORCE_COLOR and the terminal, in this order.

    >>> wants_color(None, True, {}), wants_color(None, True, {"NO_COLOR": "1"}), wants_color(None, False, {})
    (True, False, False)
    >>> wants_color(None, False, {"FORCE_COLOR": "1"}), wants_color(None, True, {"TERM": "dumb"})
    (True, False)
    """
    said = "auto" if ctx is None else ctx.meta.get(_COLOR, "auto")
    if said != "auto":
        return bool(said == "always")
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal and environment.get("TERM") != "dumb"


class Answering(click.Command):
    """A verb whose function returns a result, and never sees how it is written.

    `delivered` are the parameters that say how; `forms` are those that `--format` takes.
    """

    delivered: ClassVar[tuple[str, ...]] = ("form", "output")
    forms: ClassVar[tuple[str, ...]] = FORMS

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with the flags of progress, colors and pictures."""
        own = super().get_params(ctx)
        talk = () if any(param.name == "quiet" for param in own) else TALK
        return [*own, *talk, COLOR, PICTURES]

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags by subject, those of the screen behind the verb's own; none of a verb that has few."""
        found = getattr(super(), "sections", None)
        if found is None:
            return []
        (title, own), *rest = found(ctx)
        return [(title, [*own, COLOR, PICTURES]), *rest]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command line: a result says how to get the same again, with defaults of files and variables."""
        given = ["slipstick", str(self.name), *args]
        rest = super().parse_args(ctx, args)
        ctx.meta[_TYPED] = tuple(given)
        return rest

    def arguments(self, ctx: click.Context) -> VerbArguments:
        """Return what was said to the verb, with the command line that says it without defaults of one's own."""
        found, own = arguments_of(ctx), own_layer(ctx)
        used = used_defaults(words_of(self), own, found.settings) if own else ()
        return replace(found, command=shlex.join([*ctx.meta[_TYPED], *used]), defaults=used)

    def answer(self, arguments: VerbArguments) -> Result:
        """Run the verb's function and return its result."""
        from ...report.results.result import Result

        found = self.ask(arguments)
        assert isinstance(found, Result)
        return replace(found, command=arguments.command, defaults=arguments.defaults)

    def ask(self, arguments: VerbArguments) -> object:
        """Run the verb's function on its parameters."""
        assert self.callback is not None  # it is made of a function
        names = [param.name for param in self.get_params(click.Context(self)) if param.expose_value]
        return self.callback(**arguments.values(tuple(name for name in names if name and name not in self.delivered)))

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function and write its result; the form is known to be one before anything slow happens."""
        said, arguments = dict(ctx.params), self.arguments(ctx)
        form = self.form_of(said, arguments)
        wants_pictures(ctx, form, str(said["output"]))
        with watched(ctx):
            return self.deliver(self.answer(arguments), form, said, arguments)

    def form_of(self, said: Mapping[str, object], arguments: VerbArguments) -> str:
        """Return the form that the flags say."""
        given = said["form"]
        return form_of(None if given is None else str(given), str(said["output"]), self.forms)

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write a result."""
        write_answer(result, form, str(said["output"]))
        return 0


class AppCommand(Answering):
    """A verb whose function takes what was said as it is, and asks a function of `app`."""

    def ask(self, arguments: VerbArguments) -> object:
        """Run the verb's function."""
        assert self.callback is not None  # it is made of a function
        return self.callback(arguments)


def deliver_short(lacking: str | None, said: Mapping[str, object], write: Callable[[], object]) -> int:
    """Write an answer, which says on top what it lacks; InfeasibleError where it does, unless that is allowed."""
    write()
    if lacking is None:
        return 0
    if not said["allow_infeasible"]:
        raise InfeasibleError(f"{lacking}; --allow-infeasible leaves with exit code 0")
    click.echo(f"warning: {lacking}", err=True)
    return 0


def form_of(given: str | None, output: str, forms: Sequence[str] = FORMS) -> str:
    """Return the form of a flag and of a file's suffix; UsageError where they say two things, or the suffix none.

    >>> form_of(None, "a.json"), form_of("json", "-"), form_of(None, "-")
    ('json', 'json', 'table')
    """
    from ...report.results.files import SUFFIXES, form_of_file

    if output == "-" and given == "parquet":
        raise UsageError("--format parquet is no text: name a file, as in -o answer.parquet")
    name = Path(output.removesuffix(".gz")).suffix.lower()
    if output == "-" or (not name and not Path(output).suffix):
        return given or "table"
    known = any(name in suffixes for suffixes in SUFFIXES.values())
    if given is not None and not known:
        return given
    found = form_of_file(output, [form for form in SUFFIXES if form in forms])
    if given not in (None, found):
        raise UsageError(
            f"--format {given} and -o {output} say two things, and the suffix is of {found}: leave one out"
        )
    return found


def write_reasons(text: str, output: str) -> None:
    """Write an explanation to a file as it is, or to stdout as wide as the screen."""
    from ...report.columns import fitted

    write_text(fitted(text, columns()) if output == "-" else text, output)


def write_answer(result: Result, form: str, output: str) -> None:
    """Write a result in a form to a file, which is whole or not there at all, or to stdout."""
    from ...report.results.result import WIDTH

    if output == "-":
        colored = wants_color(click.get_current_context(silent=True), sys.stdout.isatty(), os.environ)
        # click takes escapes out of what is no terminal, unless it is told.
        text = result.form(form, columns(), colored)
        if wants_pictures(click.get_current_context(silent=True), form, output):
            text += result.drawn(columns() or WIDTH, colored)
        click.echo(shown(text, colored), nl=False, color=colored)
        return
    with writing(output):
        result.save(output, form)


def wants_pictures(ctx: click.Context | None, form: str, output: str) -> bool:
    """Whether pictures stand below a table: as --plot says, else on a terminal that has their letters.

    UsageError for --plot where no table goes to stdout.
    """
    said = None if ctx is None else ctx.meta.get(_PICTURES)
    on_screen = form == "table" and output == "-"
    if not on_screen:
        # As a default of one's own it is of tables alone.
        if said and ctx is not None and ctx.get_parameter_source("plot") is click.core.ParameterSource.COMMANDLINE:
            raise UsageError("--plot draws below a table on stdout: leave --format and -o out, or --plot")
        return False
    if said is not None:
        return bool(said)
    return sys.stdout.isatty() and "utf" in (sys.stdout.encoding or "").lower()
