"""Help on one screen: the flags that people use, then all by topic (`slipstick help`) or at once (--help-all)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import click

from ..ir.errors import UsageError, did_you_mean
from .flags.names import flag_name

Section: TypeAlias = tuple[str, Sequence[click.Parameter]]

# The flags that most command lines have, by verb; a verb that is not here has few, and its help shows all.
_STEP = "system stack gpus tp pp cp ep seq mbs gbs precision zero recompute set plan phase"
USUAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        verb: tuple(flags.split())
        for verb, flags in (
            ("estimate", f"{_STEP} engine isl osl concurrency request-rate serve tokens explain format output"),
            (
                "design optimise",
                "node area die-area power memory link dies gpus tp pp seq gbs phase objective explain best-system "
                "best-plan format output",
            ),
            (
                "choose",
                "system stack gpus tokens deadline budget power seq gbs precision tp pp objective space every mtbf "
                "rent best-plan format output",
            ),
            ("compile", f"{_STEP} emit output"),
            ("export", f"{_STEP} engine to output"),
            (
                "search",
                "system stack gpus seq gbs phase isl osl ttft tpot objective constraint vary trials jobs resume top "
                "best-plan format output",
            ),
            (
                "mixed",
                "stages stack link link-latency gpus tp cp ep zero seq mbs gbs schedule vpp pp-layout precision "
                "recompute plan format output",
            ),
            (
                "posttrain",
                "system stack gpus algorithm prompts group isl osl max-tokens placement engine engine-gpus engine-tp "
                "tp pp zero recompute steps find-plans plan format output",
            ),
            (
                "recompute",
                "system stack gpus tp pp cp zero seq mbs gbs memory-limit offloading by-stage runs-on plan "
                "best-plan format output",
            ),
            (
                "topologies",
                "system topologies equal budget vary gpus tp pp cp ep zero seq mbs gbs precision recompute plan format "
                "output",
            ),
            ("size", "system target-rps ttft tpot isl osl engine precision max-gpus top format"),
            (
                "sweep",
                "node die-area power power-density chiplets memory gpus tp seq gbs volume objective pareto trials top "
                "format output",
            ),
        )
    }
)
# Where a context keeps what its help shows: nothing for the usual flags, a topic, or all.
_SHOWN, _ALL = "slipstick.help", "all"
_WIDEST = 26
# Ends of the first thing that a flag's help says.
_FIRST = re.compile(r"(?<!e\.g)(?:[.;:](?= |$)|  \[default)")


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWN] = _ALL
        click.echo(ctx.get_help())
        ctx.exit()


HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show all flags and exit."
)


@click.command("help")
@click.argument("words", nargs=-1, metavar="[VERB] [TOPIC]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a VERB, or of one TOPIC of its flags.

    \b
    slipstick help estimate
    slipstick help search space
    slipstick help training-run
    """  # noqa: D301
    group = ctx.parent
    assert group is not None  # verbs run below the root
    assert isinstance(group.command, click.Group)
    click.echo(help_of(group, group.command, words))


def topic_of(title: str) -> str:
    """Return what a section of flags is called on the command line.

    >>> topic_of("Serving (--phase serve)"), topic_of("Training run")
    ('serving', 'training-run')
    """
    return title.partition(" (")[0].lower().replace(" ", "-")


def write_options(ctx: click.Context, formatter: click.HelpFormatter, sections: Sequence[Section]) -> None:
    """Write the usual flags of a verb in short, the flags of a topic, or all flags, as the context asks for."""
    shown, usual = ctx.meta.get(_SHOWN), USUAL.get(str(ctx.info_name))
    if shown is None and usual is not None:
        _write_usual(ctx, formatter, sections, usual)
        return
    for title, params in sections:
        if shown in (None, _ALL, topic_of(title)):
            _write(formatter, title, [record for p in params if (record := p.get_help_record(ctx)) is not None])


def help_of(ctx: click.Context, group: click.Group, words: Sequence[str]) -> str:
    """Return the help of the product, a verb, a topic of flags, or a verb's topic; UsageError names the nearest."""
    verbs = group.list_commands(ctx)
    named = list(words) if words and words[0] in verbs else ["estimate", *words]
    if not words:
        return group.get_help(ctx)
    command = group.get_command(ctx, named[0])
    assert command is not None  # it is a verb
    part = getattr(command, "part", lambda word: None)(*named[1:2] or [""])
    if part is not None:
        command, named = part, [" ".join(named[:2]), *named[2:]]
    own = click.Context(command, info_name=named[0], parent=ctx)
    if len(named) > 1:
        topics = [topic_of(title) for title, _ in sections_of(own)]
        if len(named) > 2 or named[1] not in topics:
            allowed = topics if words[0] in verbs else [*verbs, *topics]
            word = named[-1]
            raise UsageError(f"no help on '{word}'{did_you_mean(word, allowed)} allowed: {', '.join(allowed)}")
        own.meta[_SHOWN] = named[1]
    return command.get_help(own)


def is_of_topic(ctx: click.Context) -> bool:
    """Whether the help is of one topic, of which the verb's own description says nothing."""
    return ctx.meta.get(_SHOWN) not in (None, _ALL)


def sections_of(ctx: click.Context) -> Sequence[Section]:
    """Return the sections of a verb's flags; none of a verb that has few."""
    found = getattr(ctx.command, "sections", None)
    return () if found is None else found(ctx)


def _write_usual(
    ctx: click.Context, formatter: click.HelpFormatter, sections: Sequence[Section], usual: Sequence[str]
) -> None:
    """Write each usual flag with the first thing that its help says, and where the others are."""
    flags = {flag_name(param): param for _, params in sections for param in params if isinstance(param, click.Option)}
    records = [_short(flags[name]) for key in usual if (name := key.replace("-", "_")) in flags]
    _write(formatter, "Common options", [*records, ("-h, --help", "Show this message and exit.")])
    topics = ", ".join(topic_of(title) for title, _ in sections if title != "Options")
    formatter.write_paragraph()
    formatter.write_text(f"All {len(flags)} flags: slipstick {ctx.info_name} --help-all")
    formatter.write_text(f"By topic: slipstick help {ctx.info_name} TOPIC, of {topics}")


def _write(formatter: click.HelpFormatter, title: str, records: Sequence[tuple[str, str]]) -> None:
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


def _short(flag: click.Option) -> tuple[str, str]:
    """Return the shortest long name of a flag and the first thing that its help says.

    >>> _short(click.Option(["--sp/--no-sp"], help="Sequence parallelism: of norms.  [default: on]"))
    ('--sp', 'Sequence parallelism')
    """
    text = flag.help or ""
    end = _FIRST.search(text)
    words = "|".join(map(str, flag.type.choices)) if isinstance(flag.type, click.Choice) else ""
    value = flag.metavar or (words if 0 < len(words) <= _WIDEST else "WORD")
    value = "" if flag.is_flag else f" {value}"
    return f"--{flag_name(flag).replace('_', '-')}{value}", text[: end.start()] if end else text
