"""Commands of verbs: what is typed, over files and defaults of one's own, as the arguments of a function of `app`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.arguments.machine import EnvironmentArgs, FileArgs
from ...app.sources import Layer, Setting, Source, VerbArguments, merge_layers
from ...ir.errors import UsageError
from ..help import HELP_ALL, Section, is_of_topic, write_options
from ..output.talk import TALK
from .build import flags_of, options_in
from .names import of_catalogue
from .talk import talk_flags

if TYPE_CHECKING:
    from ...app.plans.launch import FilesRead

# Words by which a launch is read, before all others are.
_READ = ("launch", "plan", "gpus", "system", "model", "environment")
_FILES = "slipstick.files"
MODEL = click.Argument(["model"], shell_complete=of_catalogue("models"))


@cache
def shared_flags() -> Mapping[str, tuple[click.Option, ...]]:
    """Return the flags that all verbs of plans share, by subject; words of plans load with them."""
    from ...app.arguments.machine import MachineWordsArgs, MoneyArgs, OtherArgs, QuietArgs, RunArgs, SystemArgs
    from ...app.arguments.plan import LoweringArgs, PlanArgs, WorkloadArgs

    return MappingProxyType(
        {
            "Workload": flags_of(WorkloadArgs),
            "Plan": flags_of(PlanArgs),
            "Machine": flags_of(SystemArgs, MachineWordsArgs),
            "Training run": flags_of(RunArgs),
            "Money": flags_of(MoneyArgs),
            "Compiler": flags_of(LoweringArgs),
            "Other": (*flags_of(OtherArgs, QuietArgs), talk_flags()[1]),
        }
    )


def arguments_of(ctx: click.Context, command: str = "") -> VerbArguments:
    """Return what was said to a verb: what is typed, over what files say, over defaults of one's own."""
    source = click.core.ParameterSource.COMMANDLINE
    typed = {
        name: Setting(value, Source.TYPED)
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) is source
    }
    options = options_in(ctx.command.get_params(ctx))
    files: FilesRead | None = ctx.meta.get(_FILES)
    known = {opt.field: opt for opt in options.values()}
    own = {
        name: Setting(known[name].read(one.value), one.source) for name, one in own_layer(ctx).items() if name in known
    }
    said: list[Layer] = [own, typed] if files is None else [own, files.layer, typed, files.counted]
    plain = {name: Setting(value, _source(ctx, name)) for name, value in ctx.params.items() if name not in known}
    framework = None if files is None else files.framework
    return VerbArguments(
        settings={**plain, **merge_layers(options, *said)}, framework=framework, talk=TALK, command=command
    )


def own_layer(ctx: click.Context) -> Layer:
    """Return the defaults of one's own that a verb has."""
    settings = None if ctx.parent is None else ctx.parent.default_map
    if settings is None or settings.get(str(ctx.info_name)) is None:
        return {}
    layers: dict[str, Layer] = getattr(settings, "layers", {})
    return layers.get(str(ctx.info_name), {})


def _source(ctx: click.Context, name: str) -> Source:
    given = ctx.get_parameter_source(name)
    if given is click.core.ParameterSource.COMMANDLINE:
        return Source.TYPED
    own = own_layer(ctx).get(name)
    return Source.DEFAULT if own is None else own.source


class PlanCommand(click.Command):
    """A verb that takes MODEL, a plan file and all shared flags.

    A subclass may have more sections of flags of its own.
    """

    serves: ClassVar[bool] = False
    more: ClassVar[tuple[tuple[str, tuple[click.Option, ...]], ...]] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Name the shared parameters, then the verb's own."""
        shared = [flag for _, flags in self._shared() for flag in flags]
        own = [flag for _, flags in self.more for flag in flags]
        return [MODEL, *flags_of(FileArgs, EnvironmentArgs), *shared, *own, HELP_ALL, *super().get_params(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags, over a launch and a plan file that they name."""
        if not ctx.resilient_parsing:
            self._read_files(ctx, args)
        rest = super().parse_args(ctx, args)
        if ctx.params.get("phase") == "serve" and not self.serves and not ctx.resilient_parsing:
            told = (
                "a server runs two graphs: ask for train, prefill or decode; `slipstick estimate` answers for servers"
            )
            raise UsageError(f"--phase serve: {told}")
        return rest

    def _read_files(self, ctx: click.Context, args: list[str]) -> None:
        """Make what files say the defaults of flags: required flags may stand there."""
        raw = self.make_parser(ctx).parse_args(list(args))[0]
        params = {str(param.name): param for param in self.get_params(ctx)}
        own = {name: one.value for name, one in own_layer(ctx).items() if name in ("launch", "plan")}
        read = (name for name in _READ if isinstance(raw.get(name), str | list | tuple))
        named = {"launch", "plan"} & {*raw, *own}
        if not named:
            return
        from ...app.plans.launch import read_files

        typed = {name: params[name].type_cast_value(ctx, raw[name]) for name in read}
        options = options_in(params.values())
        files = read_files(str(ctx.info_name), options, {**own, **typed}, TALK.say)
        ctx.meta[_FILES] = files
        values = {name: one.value for name, one in files.layer.items()}
        ctx.default_map = {**(ctx.default_map or {}), **values}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usual flags, or all: the verb's own first, then the shared ones by subject."""
        write_options(ctx, formatter, self.sections(ctx))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the verb does, but for the help of a topic."""
        if not is_of_topic(ctx):
            super().format_help_text(ctx, formatter)

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags of the verb, its own first, then the shared ones by subject."""
        own = ("Options", [*flags_of(FileArgs, EnvironmentArgs), *super().get_params(ctx), HELP_ALL])
        return [own, *self.more, *self._shared()]

    def _shared(self) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield the shared flags by subject, without those in whose place the verb has one of its own."""
        own = {name for _, flags in self.more for flag in flags for name in flag.opts}
        for subject, flags in shared_flags().items():
            yield subject, [flag for flag in flags if own.isdisjoint(flag.opts)]
