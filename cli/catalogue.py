"""`slipstick list` and `slipstick show`: what there is, and what one of it is."""

from __future__ import annotations

import click

from ..ir.errors import UsageError
from .flags.shared import Named
from .output.files import columns

KINDS = (
    "chips", "engines", "metrics", "models", "networks", "ops", "passes", "prices", "stacks", "systems", "tp-plans",
)  # fmt: skip
SINGULAR = (
    "chip", "engine", "metric", "model", "network", "op", "pass", "prices", "stack", "system", "tp-plan",
)  # fmt: skip


@click.command("list")
@click.argument("kind", type=Named(KINDS))
@click.option(
    "--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output format."
)
def list_command(kind: str, form: str) -> int:
    """List all entries of a KIND."""
    from ..report.catalogue.catalogue import list_text

    click.echo(list_text(kind, form == "json", columns()))
    return 0


@click.command("show")
@click.argument("kind", type=Named(SINGULAR))
@click.argument("name", required=False)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a number of a system or its prices."
)
@click.option("--constants", is_flag=True, help="Show the constants of the kernels of a system too.")
@click.option(
    "--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output format."
)
def show_command(kind: str, name: str | None, overrides: tuple[str, ...], constants: bool, form: str) -> int:
    """Show one NAME of a KIND.

    Systems, chips, networks, stacks, engines and prices print every number with its unit and source.

    Prices need no NAME: without one they are the usual ones.
    """
    from ..report.catalogue.catalogue import show_text

    click.echo(show_text(_plural(kind), name or _usual(kind), form == "json", overrides, columns(), constants))
    return 0


def _usual(kind: str) -> str:
    """The prices that are taken where none are named; of other kinds a NAME is needed."""
    if kind != "prices":
        raise UsageError(f"show {kind} needs a NAME; `slipstick list {_plural(kind)}` shows them")
    from ..backends.prices.book import USUAL

    return USUAL


def _plural(kind: str) -> str:
    return KINDS[SINGULAR.index(kind)]
