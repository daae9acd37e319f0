"""An accelerator for an hour: owned, a year's cost over the hours that it serves; or rented, at a cloud's price."""

from __future__ import annotations

from dataclasses import replace

from ...backends.machine.system import System
from ...backends.prices.section import Prices
from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..bill import Bill
from .loans import YEAR_S
from .system import SystemCost
from .tco import Estate, yearly_bill


@dataclass(frozen=True, slots=True)
class Ownership:
    """What it takes to have so many accelerators.

    Attributes:
        num_gpus: how many.
        capex_usd: capital expenditure: machines and their part of a building; none where they are rented.
        year: what a year costs, in parts.
        hours: of a year in which each accelerator serves.
        life_years: of servers.
    """

    num_gpus: Num
    capex_usd: Num
    year: Bill
    hours: float
    life_years: float

    @property
    def gpu_hour(self) -> Bill:
        """An accelerator for an hour: year / (n hours), in the same parts."""
        return replace(_of_each(self.year, self.num_gpus, self.hours), name="GPU-hour")

    @property
    def usd_per_gpu_hour(self) -> Num:
        """What an accelerator costs for an hour."""
        return self.year.usd / (self.num_gpus * self.hours)

    @property
    def tco_usd(self) -> Num:
        """The years of a server's life."""
        return self.year.usd * self.life_years

    @property
    def opex_usd(self) -> Num:
        """What of these years is no write-off: interest, operations, energy; all of a rent."""
        return self.tco_usd - sum((p.usd for p in self.year.parts if p.name == "capital"), start=0.0) * self.life_years


def ownership(cost: SystemCost, prices: Prices, average_w: Num | None = None) -> Ownership:
    """Return what it takes to own a system that was priced.

    Args:
        cost: of the system.
        prices: method, lives, interest, energy and building: see `tco`.
        average_w: what its machines draw on average; None for the load that the price book assumes.
    """
    e = cost.estate
    estate = Estate(e.it_usd, e.network_usd, e.power_w, e.num_servers, e.cooling, average_w)
    t = prices.section.tco
    year = yearly_bill(estate, prices)
    return Ownership(cost.num_gpus, cost.bill.usd, year, _hours(prices), t.it_life.si / YEAR_S)


def rental(system: System, num_gpus: Num, prices: Prices) -> Ownership:
    """Return what it takes to rent as many of the chips of a system, by the price list of the book.

    Raises:
        UnknownNameError: a chip that the list does not have.
    """
    name = system.chip.name
    if name not in prices.section.cloud:
        unknown = UnknownNameError.of("chip of prices.cloud", name, prices.section.cloud)
        raise UnknownNameError(f"{unknown}; a file for --prices may have cloud: {{{name}: {{price: ...}}}}")
    price = prices.section.cloud[name].price.si * 3600.0
    hours = _hours(prices)
    values: dict[str, Num] = {"count": num_gpus, "hours": hours, "usd_per_hour": price}
    rent = Bill(
        "rent", num_gpus * hours * price, "count * hours * usd_per_hour", values, (f"prices.cloud.{name}.price",)
    )
    return Ownership(num_gpus, 0.0, Bill.of("year", [rent]), hours, prices.section.tco.it_life.si / YEAR_S)


def _of_each(line: Bill, num_gpus: Num, hours: float) -> Bill:
    """A line of a year as that of one of its GPU-hours."""
    formula = f"({line.formula}) / (gpus * hours_in_use)" if line.formula else ""
    values = {**line.values, "gpus": num_gpus, "hours_in_use": hours} if formula else line.values
    parts = tuple(_of_each(part, num_gpus, hours) for part in line.parts)
    return Bill(line.name, line.usd / (num_gpus * hours), formula, values, line.numbers, parts)


def _hours(prices: Prices) -> float:
    """Hours of a year of 8760 in which machines can be used and somebody pays."""
    t = prices.section.tco
    return YEAR_S / 3600.0 * t.availability.si * t.utilisation.si
