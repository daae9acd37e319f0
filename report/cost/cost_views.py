"""What a system costs, as people want to see it taken apart: dies, a package, the system, a year, its carbon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...cost.bill import Bill
from ...cost.ownership.loans import YEAR_S
from ...cost.ownership.tco import pue_of
from ...cost.silicon.dies.die import good_die
from ...driver.metrics import format_metric
from ...ir import __version__
from ...ir.units import format_si, format_usd
from ..columns import in_columns
from ..numbers import one, shown_value
from .bills import bill_lines, bill_record, bill_text, right, spoken
from .money import assumptions, notes_of, reservations, standing_lines, standing_record, terms_text, usd_text

if TYPE_CHECKING:
    from ...backends.machine.package import Die
    from ...cost.money import Money

SCHEMA = "slipstick/cost/1"


def cost_text(money: Money, view: str, columns: int | None = None) -> str:
    """Return a view as text: a headline, tables, and what the figures rest on and do not have in them."""
    body = _VIEWS[view](money, columns)
    worth = () if view in ("die", "package", "carbon") else standing_lines(money)
    return "\n".join([_headline(money), *worth, *body, *_notes(money, view), ""])


def cost_lines(money: Money, view: str) -> list[tuple[str, float]]:
    """Return the lines of a view by path, in USD or, of carbon, in kg; of the summary those of all bills."""
    if view == "carbon":
        return [(part, one(kg)) for part, kg in money.made.parts_kg.items()]
    return [(path, usd) for bill in _bills(money, view) for path, usd in bill_lines(bill)]


def cost_record(money: Money) -> Mapping[str, object]:
    """Return everything for JSON: figures, what they rest on, and all bills as trees."""
    figures = {
        "usd_capex": one(money.owned.capex_usd),
        "usd_opex": one(money.owned.opex_usd),
        "usd_tco": one(money.owned.tco_usd),
        "usd_per_gpu_hour": one(money.owned.usd_per_gpu_hour),
        "power_w": one(money.cost.power_w),
        "embodied_kg_co2e": one(money.made.total_kg),
    }
    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "inputs": {
            "system": money.system.name,
            "chip": money.system.chip.name,
            "num_gpus": one(money.cost.num_gpus),
            "prices": money.prices.name,
            "basis": money.terms.basis,
            "rented": money.terms.rented,
        },
        "assumptions": dict(assumptions(money)),
        "metrics": figures,
        **standing_record(money),
        "bills": {bill.name: bill_record(bill) for bill in _bills(money, "summary")},
        "embodied_kg_co2e": {k: one(v) for k, v in money.made.parts_kg.items()},
    }


def _headline(money: Money) -> str:
    n, s = one(money.cost.num_gpus), money.system
    servers = one(money.cost.num_servers)
    terms = "rented" if money.terms.rented else f"basis {money.terms.basis}"
    return (
        f"{s.name}  {n:,.0f} x {s.chip.name} in {servers:,.0f} server{'s' if servers != 1 else ''}  "
        f"prices {money.prices.name}  {terms}"
    )


def _notes(money: Money, view: str) -> Iterator[str]:
    """What owning rests on, where a view has any of it; a package is made whoever owns it."""
    if view in ("die", "package"):
        yield from (line for line in reservations(money) if "chip.package" in line)
        return
    a = assumptions(money)
    if view != "carbon" and not money.terms.rented:
        yield (
            f"method {a['method']}, servers {a['server_life_years']:g} years, {a['hours_a_year']:,.0f} hours a year, "
            f"interest {a['interest_rate']:.1%}, {a['usd_per_kwh']:.3g} USD/kWh, PUE {a['pue']:g}"
        )
        yield f"energy: {a['average_load']:.0%} of full load; `slipstick estimate` takes the power that a step draws"
    yield from notes_of(money)


def _summary(money: Money, columns: int | None) -> list[str]:
    made_kg, watts = one(money.made.total_kg), one(money.cost.power_w)
    n = one(money.cost.num_gpus)
    rows = [["", "all", "a GPU"], *_made(money), *(_rent(money) if money.terms.rented else _owning(money))]
    rows += [
        ["power at full load", format_si(watts, "W"), f"{watts / n:,.0f} W"],
        ["carbon of making it", f"{format_metric('tco2e', made_kg / 1e3)}CO2e", f"{made_kg / n:,.0f} kgCO2e"],
        [f"GPU-hour ({terms_text(money)})", "", usd_text(money, one(money.owned.usd_per_gpu_hour))],
    ]
    return [in_columns(right(rows), columns), *_levels(money, columns)]


def _made(money: Money) -> Iterator[list[str]]:
    """What package manufacturing cost; a die of several is a GPU in some systems."""
    package = money.system.package
    if money.package is not None and package is not None:
        each = "" if package.num_ranks == 1 else format_usd(one(money.package.usd) / package.num_ranks)
        yield ["package manufacturing cost", format_usd(one(money.package.usd)), each]


def _owning(money: Money) -> Iterator[list[str]]:
    """Capex by part, what of it falls on the life of servers, and opex."""
    o, life = money.owned, f"{money.owned.life_years:g} years"
    written_off = one(o.tco_usd) - one(o.opex_usd)
    lines = [(spoken(part.name), one(part.usd)) for part in money.cost.bill.parts]
    lines += [("capex", one(o.capex_usd)), (f"depreciation ({life})", written_off)]
    lines += [(f"interest, maintenance, energy of {life}", one(o.opex_usd)), (f"owned for {life}", one(o.tco_usd))]
    yield from (_row(label, usd, money) for label, usd in lines)


def _rent(money: Money) -> Iterator[list[str]]:
    yield _row("rent of a year", one(money.owned.year.usd), money)


def _row(label: str, usd: float, money: Money) -> list[str]:
    return [label, usd_text(money, usd), usd_text(money, usd / one(money.cost.num_gpus))]


def _levels(money: Money, columns: int | None) -> list[str]:
    """Switches and links of each level that joins anything, as its topology has them."""
    rows = [
        [level.level.name, f"{one(w.switches):,.0f}", " + ".join(f"{one(k):,.0f}" for k in w.links)]
        for level in money.cost.levels
        if (w := level.wiring) is not None and one(w.ranks)
    ]
    return [in_columns([["level", "switches", "links, tier by tier"], *rows], columns)] if rows else []


def _dies(money: Money, columns: int | None) -> list[str]:
    package = money.system.package
    assert package is not None
    return [line for die, count in package.assembly.counted_dies() for line in _die(money, die, one(count), columns)]


def _die(money: Money, die: Die, count: float, columns: int | None) -> Iterator[str]:
    book, good = money.prices.section, good_die(die, money.prices.section)
    yield f"{die.name}: {count:g} a package, {one(die.area_mm2):g} mm2 of {die.node}"
    yield bill_text(good.bill(), columns)
    defects = book.node(die.node).defect_density.record("")
    per_wafer = one(good.dies_per_wafer)
    rows = [["wafer", format_usd(one(good.wafer_usd))], ["dies of a wafer", f"{per_wafer:.1f}"]]
    rows += [["defects", f"{shown_value(defects)}, {spoken(book.model('yield'))}"]]
    rows += [["good", f"{one(good.good):.1%}{_harvest(die)}"], ["pass the test", f"{one(good.test.shipped):.1%}"]]
    yield in_columns([*rows, ["dies of a wafer that pass", f"{per_wafer * one(good.test.shipped):.1f}"]], columns)


def _harvest(die: Die) -> str:
    h = die.harvest
    return "" if h is None else f", of which {one(h.needed):g} of {one(h.units):g} units must work"


def _package(money: Money, columns: int | None) -> list[str]:
    assert money.package is not None
    return [bill_text(money.package, columns)]


def _system(money: Money, columns: int | None) -> list[str]:
    return [bill_text(money.cost.bill, columns, {"a GPU": one(money.cost.num_gpus)}), *_levels(money, columns)]


def _tco(money: Money, columns: int | None) -> list[str]:
    n, hours = one(money.cost.num_gpus), money.owned.hours
    return [bill_text(money.owned.year, columns, {"a GPU": n, "a GPU-hour": n * hours})]


def _carbon(money: Money, columns: int | None) -> list[str]:
    n, total = one(money.cost.num_gpus), one(money.made.total_kg)
    parts = [*((k, one(v)) for k, v in money.made.parts_kg.items()), ("all", total)]
    rows = [[k, f"{kg:,.0f} kg", f"{kg / total if total else 0:.1%}", f"{kg / n:,.1f} kg"] for k, kg in parts]
    grid = money.prices.section.carbon
    per_kwh = grid.grids[grid.grid].si * 3.6e6
    # Joules of a year of machines and building at the load of the price book.
    pue, load = pue_of(money.prices, money.cost.estate.cooling), money.prices.section.energy.average_load.si
    yearly_t = one(money.cost.power_w * (load * pue * YEAR_S)) * grid.grids[grid.grid].si / 1e3
    return [
        in_columns(right([["made, kgCO2e", "all", "share", "a GPU"], *rows]), columns),
        f"energy of a year: {yearly_t:,.4g} tCO2e at {per_kwh:.3g} kg/kWh (grid {grid.grid}), building and load in it",
    ]


_VIEWS: Mapping[str, Callable[[Money, int | None], list[str]]] = MappingProxyType(
    {"summary": _summary, "die": _dies, "package": _package, "system": _system, "tco": _tco, "carbon": _carbon}
)


def _bills(money: Money, view: str) -> Sequence[Bill]:
    package = () if money.package is None else (money.package,)
    views: Mapping[str, Sequence[Bill]] = {
        "package": package,
        "system": (money.cost.bill,),
        "tco": (money.owned.year, money.owned.gpu_hour),
        "die": [good_die(die, money.prices.section).bill() for die in _kinds(money)] if view == "die" else (),
    }
    return views.get(view, money.bills)


def _kinds(money: Money) -> Iterator[Die]:
    return iter(()) if money.system.package is None else money.system.package.assembly.dies
