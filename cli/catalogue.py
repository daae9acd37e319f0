"""`slipstick list`, `slipstick show` and `slipstick support`: what there is, what one of it is, what is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from ..ir.errors import UsageError, did_you_mean
from .flags.numbers import Named
from .output.answers import Answering, format_flag, output_flag

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..report.results.documents import DocumentResult

# What can be listed, and what one of it is called.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "adapters": "adapter",
        "cables": "cable",
        "chips": "chip",
        "d2d": "d2d",
        "engines": "engine",
        "memories": "memory",
        "metrics": "metric",
        "models": "model",
        "networks": "network",
        "nodes": "node",
        "ops": "op",
        "passes": "pass",
        "precisions": "precision",
        "prices": "prices",
        "schedules": "schedule",
        "stacks": "stack",
        "switches": "switch",
        "systems": "system",
        "tp-plans": "tp-plan",
        "transceivers": "transceiver",
        "units": "unit",
    }
)
# Other words for kinds, by which people look for them.
_CALLED: Mapping[str, str] = MappingProxyType(
    {
        "accelerators": "chips",
        "clusters": "systems",
        "gpus": "chips",
        "interconnects": "networks",
        "machines": "systems",
        "operators": "ops",
        "quantizations": "precisions",
        "recipes": "precisions",
        "servers": "systems",
    }
)


def as_kind(word: str) -> str | None:
    """Return the kind that a word names in singular, in plural or by another word for it; None where it names none.

    >>> as_kind("model"), as_kind("recipes"), as_kind("gpu"), as_kind("x")
    ('models', 'precisions', 'chips', None)
    """
    word = word.lower()
    plural = next((kind for kind, one in KINDS.items() if word in (kind, one)), None)
    return plural or _CALLED.get(word) or _CALLED.get(f"{word}s")


class _Kind(Named):
    """A kind in any of its words; of a name of the catalogue it says of which kind that is."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the kind as the verb has it."""
        kind = as_kind(value)
        if kind is not None:
            return kind if kind in self.choices else KINDS[kind]
        found = [kind for kind in KINDS if value.lower() in _known(kind)]
        if found:
            self.fail(f"'{value}' is a name, not a kind: slipstick show {KINDS[found[0]]} {value}", param, ctx)
        near = did_you_mean(value, [*map(str, self.choices), *_CALLED])
        self.fail(f"'{value}' is not a kind{near} allowed: {', '.join(map(str, self.choices))}", param, ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Name the kinds in one line."""
        return f"One of: {', '.join(map(str, self.choices))}"


def _known(kind: str) -> Sequence[str]:
    from ..report.catalogue.catalogue import names_of

    return names_of(kind)


@click.command(
    "list", cls=Answering, params=[format_flag(), output_flag()], help=f"List all of a KIND: {', '.join(KINDS)}."
)
@click.argument("kind", type=_Kind(tuple(KINDS)), metavar="KIND")
def list_command(kind: str) -> DocumentResult:
    """List all of a kind."""
    from ..report.catalogue.catalogue import list_text
    from ..report.results.documents import DocumentResult

    return DocumentResult(
        title=kind, document=lambda: list_text(kind, True, None), screen=lambda width: list_text(kind, False, width)
    )


def _names(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the NAME of the KIND before it."""
    from click.shell_completion import CompletionItem

    kind = ctx.params.get("kind")
    known = _known(_plural(kind)) if isinstance(kind, str) else ()
    return [CompletionItem(name) for name in known if name.lower().startswith(begun.lower())]


@click.command(
    "show",
    cls=Answering,
    params=[format_flag(), output_flag()],
    help=f"""Show one NAME of a KIND: {", ".join(KINDS.values())}.

    Every number is printed with its unit and source.

    For prices, NAME may be left out: the default price book.
    """,
)
@click.argument("kind", type=_Kind(tuple(KINDS.values())), metavar="KIND")
@click.argument("name", required=False, shell_complete=_names)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a number of the system or its prices, as in `slipstick estimate`.",
)
@click.option("--constants", is_flag=True, help="Show the constants of the kernels of a system too.")
def show_command(kind: str, name: str | None, overrides: tuple[str, ...], constants: bool) -> DocumentResult:
    """Show one of a kind."""
    from ..report.catalogue.catalogue import show_text
    from ..report.results.documents import DocumentResult

    of, named = _plural(kind), name or _usual(kind)

    def told(as_json: bool, width: int | None) -> str:
        return show_text(of, named, as_json, overrides, width, constants)

    return DocumentResult(
        title=f"{kind} {named}", document=lambda: told(True, None), screen=lambda width: told(False, width)
    )


@click.command("support", cls=Answering, params=[format_flag(), output_flag()])
@click.argument("words", nargs=-1, metavar="[WORD]...")
def support_command(words: tuple[str, ...]) -> DocumentResult:
    """Show which models, chips, software and precisions were validated, the prediction errors, and what failed.

    WORDs select lines: a model, a chip, a stack or an engine, a precision, a quantity. `rows` counts measured
    quantities with a prediction, `judged` those that no constant was fitted to; median and p90 are of the absolute
    relative error.
    """
    from ..report.catalogue.support import support
    from ..report.results.documents import DocumentResult

    found = support(words)
    return DocumentResult(title="support", document=found.json, screen=found.text)


def _usual(kind: str) -> str:
    """The prices that are taken where none are named; of other kinds a NAME is needed."""
    if kind != "prices":
        raise UsageError(f"show {kind} needs a NAME; `slipstick list {_plural(kind)}` shows them")
    from ..backends.prices.book import USUAL

    return USUAL


def _plural(kind: str) -> str:
    return next(plural for plural, one in KINDS.items() if one == kind)
