"""Money of owning machines, a year: what they cost, their loans, their building, their energy, their maintenance.

Two methods, by name:

    chiplet-cloud  Peng et al., Chiplet Cloud (github bespoke-silicon-group/reallm, TCO.py): servers and network are
                   depreciated over the life of servers and bought on a loan; a building of c USD/W over its own life,
                   on a loan, and a sum for each watt and month; a part of the servers' price for maintenance; energy,
                   and PUE - 1 of it on top
    annual         Stojkovic et al., Rearchitecting the Datacenter Lifecycle for AI: each class of thing over its own
                   life (servers, network, building), each on a loan; maintenance, network and software by the
                   server; energy, times PUE

A year has 8760 hours in both, those of an accelerator-hour and of energy (Chiplet Cloud pays the energy of months of 30
days, 8640 hours, and so 1.4 % less of it).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.machine.machine import Cooling
from ...backends.prices.section import Prices
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..bill import Bill
from .loans import YEAR_S, total_interest_usd


@dataclass(frozen=True, slots=True)
class Estate:
    """What is owned.

    Attributes:
        it_usd: price of servers and racks.
        network_usd: price of what joins them.
        power_w: what all of it draws at full load.
        num_servers: how many servers.
        cooling: what takes their heat away.
        average_w: what it draws on average; None for the load that the price book assumes.
    """

    it_usd: Num
    network_usd: Num
    power_w: Num
    num_servers: Num
    cooling: Cooling = "air"
    average_w: Num | None = None


def yearly_bill(estate: Estate, prices: Prices) -> Bill:
    """Return what a year costs, in parts that add up; see the top of the module for the two methods."""
    capital = _capital(estate, prices)
    parts = [Bill.of("capital", [line for line, _ in capital]), Bill.of("interest", [line for _, line in capital])]
    return Bill.of("year", [*parts, _operations(estate, prices), _energy(estate, prices)])


def facility_bill(estate: Estate, prices: Prices) -> Bill:
    """Return what the building of an estate costs to put up: its part of power delivery and cooling.

    A sum by the server has all in it, and what it takes to run.
    """
    f = prices.section.facility
    if f.charged == "per_server":
        return Bill.of("facility", [_of("facility", f.per_server.si, estate.num_servers, "per_server")])
    if prices.section.tco.method == "chiplet-cloud":
        return Bill.of("facility", [_of("power delivery and cooling", f.capex.si, estate.power_w, "capex")])
    cooling_usd_per_w = f.cooling.air.si if estate.cooling == "air" else f.cooling.liquid.si
    cooling = _of("cooling", cooling_usd_per_w, estate.power_w, f"cooling.{estate.cooling}")
    return Bill.of("facility", [_of("power delivery", f.power_delivery.si, estate.power_w, "power_delivery"), cooling])


def _of(name: str, each_usd: float, count: Num, path: str) -> Bill:
    return Bill(name, each_usd * count, "each_usd * count", {"each_usd": each_usd, "count": count}, (_facility(path),))


def _facility(key: str) -> str:
    return f"prices.facility.{key}"


def _capital(estate: Estate, prices: Prices) -> Sequence[tuple[Bill, Bill]]:
    """Depreciation of each class of thing in a year, and what its loan takes."""
    t, f = prices.section.tco, prices.section.facility
    together = t.method == "chiplet-cloud"
    network_life = ("it_life", t.it_life.si) if together else ("network_life", t.network_life.si)
    facility = facility_bill(estate, prices)
    if f.charged == "per_server":
        # The sum is that of a server's life, loans and operations in it.
        built = (_written_off("facility", facility.usd, "tco.it_life", t.it_life.si), Bill("facility", 0.0))
    else:
        life = ("capex_life", f.capex_life.si) if together else ("life", f.life.si)
        built = _owed("facility", facility.usd, f"facility.{life[0]}", life[1], prices)
    return (
        _owed("servers", estate.it_usd, "tco.it_life", t.it_life.si, prices),
        _owed("network", estate.network_usd, f"tco.{network_life[0]}", network_life[1], prices),
        built,
    )


def _owed(name: str, usd: Num, path: str, life_s: float, prices: Prices) -> tuple[Bill, Bill]:
    rate = prices.section.tco.interest_rate.si
    share = total_interest_usd(1.0, rate, life_s)
    values: dict[str, Num] = {"price_usd": usd, "interest": share, "life_years": life_s / YEAR_S, "rate_a_year": rate}
    loan = Bill(
        name,
        usd * (share * (YEAR_S / life_s)),
        "price_usd * interest / life_years",
        values,
        ("prices.tco.interest_rate", f"prices.{path}"),
    )
    return _written_off(name, usd, path, life_s), loan


def _written_off(name: str, usd: Num, path: str, life_s: float) -> Bill:
    values: dict[str, Num] = {"price_usd": usd, "life_years": life_s / YEAR_S}
    return Bill(name, usd * (YEAR_S / life_s), "price_usd / life_years", values, (f"prices.{path}",))


def _operations(estate: Estate, prices: Prices) -> Bill:
    t, f = prices.section.tco, prices.section.facility
    if t.method == "annual":
        rates = (("maintenance", t.maintenance.si), ("network", t.network_opex.si), ("software", t.software.si))
        keys = ("maintenance", "network_opex", "software")
        lines = [_by_server(name, usd_per_s, estate, key) for (name, usd_per_s), key in zip(rates, keys, strict=True)]
        return Bill.of("operations", lines)
    care_usd = estate.it_usd * (t.server_opex.si * YEAR_S / t.it_life.si)
    values: dict[str, Num] = {
        "price_usd": estate.it_usd,
        "share": t.server_opex.si,
        "life_years": t.it_life.si / YEAR_S,
    }
    numbers = ("prices.tco.server_opex", "prices.tco.it_life")
    lines = [Bill("servers", care_usd, "price_usd * share / life_years", values, numbers)]
    if f.charged == "per_watt":
        run_usd = estate.power_w * f.opex.si * YEAR_S
        values = {"power_w": estate.power_w, "usd_per_w_year": f.opex.si * YEAR_S}
        lines.append(Bill("facility", run_usd, "power_w * usd_per_w_year", values, (_facility("opex"),)))
    return Bill.of("operations", lines)


def _by_server(name: str, usd_per_s: float, estate: Estate, key: str) -> Bill:
    values: dict[str, Num] = {"servers": estate.num_servers, "usd_per_year": usd_per_s * YEAR_S}
    usd = estate.num_servers * (usd_per_s * YEAR_S)
    return Bill(name, usd, "servers * usd_per_year", values, (f"prices.tco.{key}",))


def _energy(estate: Estate, prices: Prices) -> Bill:
    """Electricity of the machines, and of the building around them: PUE - 1 of it."""
    e = prices.section.energy
    average_w = estate.power_w * e.average_load.si if estate.average_w is None else estate.average_w
    hours = YEAR_S / 3600.0
    usd_per_kwh = e.electricity.si * 3.6e6
    pue = pue_of(prices, estate.cooling)
    values: dict[str, Num] = {"average_w": average_w, "hours": hours, "usd_per_kwh": usd_per_kwh}
    numbers = ("prices.energy.electricity", *(("prices.energy.average_load",) if estate.average_w is None else ()))
    usd = average_w * (hours * usd_per_kwh / 1e3)
    over = {**values, "pue": pue}
    path = _facility(f"pue.{estate.cooling}")
    formula = "average_w * hours * usd_per_kwh / 1000"
    building = Bill("building", usd * (pue - 1.0), f"{formula} * (pue - 1)", over, (path, *numbers))
    return Bill.of("energy", [Bill("machines", usd, formula, values, numbers), building])


def pue_of(prices: Prices, cooling: Cooling) -> float:
    """Return the power of a facility over that of its machines."""
    pue = prices.section.facility.pue
    return pue.air.si if cooling == "air" else pue.liquid.si
