"""`slipstick cost`: what a system costs, from its dies to a GPU for an hour."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ..ir.errors import UsageError
from .flags.shared import MONEY, Named
from .output.files import columns, write_text

if TYPE_CHECKING:
    from ..backends.machine.system import System
    from ..cost.money import Money

VIEWS = ("summary", "die", "package", "system", "tco", "carbon")


@click.command("cost", params=list(MONEY))
@click.argument("system")
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="Accelerators.  [default: those of one server, or of one rack where racks are sold full]",
)
@click.option(
    "--breakdown",
    "view",
    type=Named(VIEWS),
    default="summary",
    show_default=True,
    help="What to break down: dies, one package, the purchase, a year of ownership, or carbon.",
)
@click.option("--prices", metavar="NAME|FILE", help="A profile of `slipstick list prices`, or a YAML file.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a number of the system or its prices, e.g. prices.nodes.N5.wafer_price=13400USD. Repeatable.",
)
@click.option(
    "--explain",
    metavar="LINE",
    help="Explain a line or metric, e.g. 'chip defects', energy/machines, usd_tco.",
)
@click.option(
    "--format", "form", type=Named(("table", "json", "csv")), default="table", show_default=True, help="Output format."
)
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Where to write it; - is stdout.")
def cost_command(
    system: str,
    gpus: int | None,
    view: str,
    basis: str,
    rent: bool,
    prices: str | None,
    overrides: tuple[str, ...],
    explain: str | None,
    form: str,
    output: str,
) -> int:
    """Show what SYSTEM costs: to make, to buy, to own, in energy and in carbon.

    SYSTEM is a name of `slipstick list systems`, or a YAML file; `estimate` of the same prices its steps.

    \b
    slipstick cost dgx-h100 --gpus 1024
    slipstick cost dgx-h100 --breakdown package --explain 'chip defects'
    """  # noqa: D301
    from ..backends.machine.load import load_system
    from ..cost.money import Terms, system_money

    loaded = load_system(system, overrides, prices=prices)
    terms = Terms(basis="build" if basis == "build" else "market", rented=rent)
    money = system_money(loaded, gpus or _smallest(loaded, basis), terms)
    write_text(_explained(money, explain, form) if explain is not None else _written(money, view, form), output)
    return 0


def _smallest(system: System, basis: str) -> int:
    """The accelerators of the least that is sold: a server, or a rack where racks are bought full."""
    full = basis == "market" and system.rack is not None and system.rack.price_usd is not None
    return system.node_size * (system.rack.num_servers if full and system.rack is not None else 1)


def _explained(money: Money, line: str, form: str) -> str:
    from ..report.explain.money_reasons import explain_cost

    if form != "table":
        raise UsageError(f"--explain writes text, no {form}; formulas and values of all lines are in --format json")
    return explain_cost(money, line)


def _written(money: Money, view: str, form: str) -> str:
    from ..report.cost.cost_views import cost_csv, cost_record, cost_text

    if view in ("die", "package") and money.package is None:
        raise UsageError(
            f"chip {money.system.chip.name} does not say what it is made of: add a section package to its file"
        )
    if view == "system" and money.terms.rented:
        raise UsageError("what is rented is not bought: leave --rent out for --breakdown system")
    if form == "json":
        return json.dumps(cost_record(money), indent=2)
    return cost_csv(money, view) if form == "csv" else cost_text(money, view, columns())
