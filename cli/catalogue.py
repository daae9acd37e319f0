"""`slipstick list` and `slipstick show`: what there is, and what one of it is."""

from __future__ import annotations

import click

from .flags import Named
from .output import columns

KINDS = ("chips", "metrics", "models", "networks", "ops", "passes", "stacks", "systems", "tp-plans")
SINGULAR = ("chip", "metric", "model", "network", "op", "pass", "stack", "system", "tp-plan")


@click.command("list")
@click.argument("kind", type=Named(KINDS))
@click.option("--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output.")
def list_command(kind: str, form: str) -> int:
    """List what there is of a KIND."""
    from ..report.catalogue import list_text

    click.echo(list_text(kind, form == "json", columns()))
    return 0


@click.command("show")
@click.argument("kind", type=Named(SINGULAR))
@click.argument("name")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a number of a system.")
@click.option("--constants", is_flag=True, help="Show the constants of the kernels of a system too.")
@click.option("--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output.")
def show_command(kind: str, name: str, overrides: tuple[str, ...], constants: bool, form: str) -> int:
    """Show one NAME of a KIND; systems, chips, networks and stacks print every number with its unit and source."""
    from ..report.catalogue import show_text

    click.echo(show_text(_plural(kind), name, form == "json", overrides, columns(), constants))
    return 0


def _plural(kind: str) -> str:
    return KINDS[SINGULAR.index(kind)]
