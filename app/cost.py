"""Price systems from their dies to a GPU-hour, one alone or several side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.errors import UsageError
from ..ir.records import dataclass
from .sources import VerbArguments
from .systems import systems_named

if TYPE_CHECKING:
    from ..backends.machine.system import System
    from ..report.results.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRequest:
    """A system, or several; how many accelerators of it, whose they are, and what of it is taken apart."""

    system: str
    gpus: int | None
    view: str
    basis: str
    rent: bool
    prices: str | None
    year: int | None
    overrides: tuple[str, ...]
    loaded: System | None = None

    @classmethod
    def of(cls, arguments: VerbArguments) -> CostRequest:
        """Return what arguments say."""
        return arguments.take(cls)


def price_system(request: CostRequest) -> Result:
    """Price a system, products of a file, or several systems beside one another."""
    # A name is refused before what prices its system is loaded.
    from ..backends.machine.files.catalogue import read_file

    system, names = request.system, systems_named(request.system)
    if request.loaded is None and not system.endswith((".yaml", ".yml")):
        for name in names:
            read_file("systems", name)

    from ..backends.machine.load import load_system
    from ..backends.prices.book import at_year, books_of
    from ..cost.money import Terms, system_money
    from ..report.cost.systems import costs_of, costs_result
    from ..report.results.tables import CostResult

    gpus, view, basis = request.gpus, request.view, request.basis
    rent, loaded, overrides = request.rent, request.loaded, request.overrides
    prices = at_year(request.prices, request.year)
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
