"""`slipstick cost`: what a system costs, from its dies to a GPU for an hour; several systems side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ..ir.errors import UsageError
from .flags.names import of_catalogue
from .flags.numbers import Named, Whole
from .flags.shared import MONEY, YEAR, systems_named
from .output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, FORMS, Answering, format_flag, output_flag, write_reasons

if TYPE_CHECKING:
    from ..backends.machine.system import System
    from ..report.results.result import Result

VIEWS = ("summary", "die", "package", "system", "tco", "carbon")


class CostCommand(Answering):
    """A verb that can also say why one line is what it is."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "explain")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS

    def form_of(self, said: Mapping[str, object]) -> str:
        """Return the form; an explanation is text, to a file of any name."""
        if said["explain"] is None:
            return super().form_of(said)
        if said["form"] not in (None, "table"):
            told = "formulas and values of all lines are in --format json"
            raise UsageError(f"--explain writes text, no {said['form']}; {told}")
        return "table"

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the result, or the reason of a line."""
        if said["explain"] is None:
            return super().deliver(result, form, said)
        from ..report.results.tables import CostResult

        if not isinstance(result, CostResult):
            raise UsageError("--explain takes a line of one system: name one")
        write_reasons(result.explain(str(said["explain"])), str(said["output"]))
        return 0


@click.command("cost", cls=CostCommand, params=[YEAR, *MONEY, format_flag(*FORMS, "svg"), output_flag(DRAWN_SUFFIXES)])
@click.argument("system", shell_complete=of_catalogue("systems"))
@click.option(
    "--gpus",
    type=Whole(min=1),
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
@click.option(
    "--prices",
    metavar="NAME|FILE",
    help="A profile of `slipstick list prices`, or a YAML file; of several systems `all`.",
)
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
def cost_command(
    system: str,
    gpus: int | None,
    view: str,
    basis: str,
    rent: bool,
    prices: str | None,
    year: int | None,
    overrides: tuple[str, ...],
    loaded: System | None = None,
) -> Result:
    """Show the cost of SYSTEM: manufacturing, purchase, ownership, energy and carbon.

    SYSTEM is a name of `slipstick list systems`, or a YAML file; `slipstick estimate` prices its steps. Several systems
    separated by commas, or `all`, are compared: bought, built and rented. A YAML file of products shows their cost with
    and without the dies and packages that they share.

    \b
    slipstick cost dgx-h100 --gpus 1024
    slipstick cost dgx-h100,dgx-b200,gb200-nvl72 --gpus 1024 --prices mine.yaml
    slipstick cost dgx-h100 --breakdown package --explain 'chip defects'
    slipstick cost family.yaml --set products.large.volume=200000
    """  # noqa: D301
    # A name is refused before what prices its system is loaded.
    from ..backends.machine.files.catalogue import read_file

    names = systems_named(system)
    if loaded is None and not system.endswith((".yaml", ".yml")):
        for name in names:
            read_file("systems", name)

    from ..backends.machine.load import load_system
    from ..backends.prices.book import at_year, books_of
    from ..cost.money import Terms, system_money
    from ..report.cost.systems import costs_of, costs_result
    from ..report.results.tables import CostResult

    prices = at_year(prices, year)
    if loaded is None and system.endswith((".yaml", ".yml")) and (found := _portfolio(system, prices, overrides)):
        _check_portfolio(gpus, basis, rent, view)
        return found
    if loaded is None and len(names) > 1:
        _check_several(basis, rent, view)
        books = books_of(prices) if prices else (None,)
        systems = [[load_system(name, overrides, prices=book) for name in names] for book in books]
        return costs_result([[costs_of(one, gpus or _smallest(one, "market")) for one in of] for of in systems])
    loaded = loaded or load_system(system, overrides, prices=prices)
    terms = Terms(basis="build" if basis == "build" else "market", rented=rent)
    money = system_money(loaded, gpus or _smallest(loaded, basis), terms)
    if view in ("die", "package") and money.package is None:
        told = "does not say what it is made of: add a section package to its file"
        raise UsageError(f"chip {loaded.chip.name} {told}")
    if view == "system" and rent:
        raise UsageError("what is rented is not bought: leave --rent out for --breakdown system")
    return CostResult(money=money, view=view)


def _portfolio(path: str, prices: str | None, overrides: tuple[str, ...]) -> Result | None:
    """Price the products of a file; None where it is a machine."""
    from ..backends.machine.portfolio import is_portfolio, load_portfolio

    if not is_portfolio(path):
        return None
    from ..backends.prices.book import USUAL, load_prices
    from ..cost.silicon.portfolio import portfolio_cost
    from ..report.cost.portfolio import portfolio_result

    of_prices = tuple(text.removeprefix("prices.") for text in overrides if text.startswith("prices."))
    book = load_prices(prices or USUAL, of_prices)
    name, products = load_portfolio(path, [text for text in overrides if not text.startswith("prices.")])
    return portfolio_result(portfolio_cost(name, products, book), book)


def _check_portfolio(gpus: int | None, basis: str, rent: bool, view: str) -> None:
    """Raise UsageError for what asks for a machine: products have no servers."""
    flags = (("--gpus", gpus is not None), ("--basis", basis != "market"), ("--rent", rent))
    given = [flag for flag, is_said in (*flags, ("--breakdown", view != "summary")) if is_said]
    if given:
        raise UsageError(f"{given[0]}: the file holds products, and no machine around them: leave it out")


def _check_several(basis: str, rent: bool, view: str) -> None:
    """Raise UsageError for what asks a part of the table of several systems, or more of one of them."""
    given = [flag for flag, is_said in (("--basis", basis != "market"), ("--rent", rent)) if is_said]
    if given:
        raise UsageError(f"{given[0]}: several systems are shown bought, built and rented side by side: leave it out")
    if view != "summary":
        raise UsageError(f"--breakdown {view} takes one system apart: name one")


def _smallest(system: System, basis: str) -> int:
    """The accelerators of the least that is sold: a server, or a rack where racks are bought full."""
    full = basis == "market" and system.rack is not None and system.rack.price_usd is not None
    return system.node_size * (system.rack.num_servers if full and system.rack is not None else 1)
