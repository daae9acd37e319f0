"""`slipstick list` and `slipstick show`: what there is, and what one of it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..ir.errors import UsageError
from .flags.shared import Named
from .output.answers import Answering, format_flag, output_flag

if TYPE_CHECKING:
    from ..report.results.documents import DocumentResult

KINDS = (
    "chips", "engines", "metrics", "models", "networks", "ops", "passes", "prices", "stacks", "systems", "tp-plans",
)  # fmt: skip
SINGULAR = (
    "chip", "engine", "metric", "model", "network", "op", "pass", "prices", "stack", "system", "tp-plan",
)  # fmt: skip


@click.command("list", cls=Answering, params=[format_flag(), output_flag()])
@click.argument("kind", type=Named(KINDS))
def list_command(kind: str) -> DocumentResult:
    """List all entries of a KIND."""
    from ..report.catalogue.catalogue import list_text
    from ..report.results.documents import DocumentResult

    return DocumentResult(
        title=kind, document=lambda: list_text(kind, True, None), screen=lambda width: list_text(kind, False, width)
    )


@click.command("show", cls=Answering, params=[format_flag(), output_flag()])
@click.argument("kind", type=Named(SINGULAR))
@click.argument("name", required=False)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a number of a system or its prices."
)
@click.option("--constants", is_flag=True, help="Show the constants of the kernels of a system too.")
def show_command(kind: str, name: str | None, overrides: tuple[str, ...], constants: bool) -> DocumentResult:
    """Show one NAME of a KIND.

    Systems, chips, networks, stacks, engines and prices print every number with its unit and source.

    Prices need no NAME: without one they are the usual ones.
    """
    from ..report.catalogue.catalogue import show_text
    from ..report.results.documents import DocumentResult

    of, named = _plural(kind), name or _usual(kind)

    def told(as_json: bool, width: int | None) -> str:
        return show_text(of, named, as_json, overrides, width, constants)

    return DocumentResult(
        title=f"{kind} {named}", document=lambda: told(True, None), screen=lambda width: told(False, width)
    )


def _usual(kind: str) -> str:
    """The prices that are taken where none are named; of other kinds a NAME is needed."""
    if kind != "prices":
        raise UsageError(f"show {kind} needs a NAME; `slipstick list {_plural(kind)}` shows them")
    from ..backends.prices.book import USUAL

    return USUAL


def _plural(kind: str) -> str:
    return KINDS[SINGULAR.index(kind)]
