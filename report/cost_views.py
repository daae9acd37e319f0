"""What a system costs, as people want to see it taken apart: dies, a package, the system, a year, its carbon."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from .. import __version__
from ..cost.bill import Bill
from ..cost.silicon.die import good_die
from ..ir.units import format_si, format_usd
from .bills import bill_lines, bill_record, bill_text
from .columns import in_columns
from .money import assumptions, terms_text
from .numbers import one

if TYPE_CHECKING:
    from ..backends.package import Die
    from ..cost.money import Money

SCHEMA = "slipstick/cost/1"


def cost_text(money: Money, view: str, columns: int | None = None) -> str:
    """Return a view as text: a headline, tables, and what could not be priced."""
    body = _VIEWS[view](money, columns)
    return "\n".join([_headline(money), *body, *_notes(money), ""])


def cost_csv(money: Money, view: str) -> str:
    """Return the lines of a view by path; of the summary those of all bills."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["line", "usd"])
    for bill in _bills(money, view):
        writer.writerows([path, repr(usd)] for path, usd in bill_lines(bill))
    return text.getvalue()


def cost_record(money: Money) -> Mapping[str, object]:
    """Return everything for JSON: figures, what they rest on, and all bills as trees."""
    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "inputs": {
            "system": money.system.name, "chip": money.system.chip.name, "num_gpus": one(money.cost.num_gpus),
            "prices": money.prices.name, "basis": money.terms.basis, "rented": money.terms.rented,
        },
        "assumptions": dict(assumptions(money)),
        "metrics": _figures(money),
        "unpriced": list(money.unpriced),
        "bills": {bill.name: bill_record(bill) for bill in _bills(money, "summary")},
        "embodied_kg_co2e": {k: one(v) for k, v in money.made.parts_kg.items()},
    }  # fmt: skip


def _figures(money: Money) -> dict[str, float]:
    return {
        "usd_capex": one(money.owned.capex_usd),
        "usd_opex": one(money.owned.opex_usd),
        "usd_tco": one(money.owned.tco_usd),
        "usd_per_gpu_hour": one(money.owned.gpu_hour.usd),
        "power_w": one(money.cost.power_w),
        "embodied_kg_co2e": one(money.made.total_kg),
    }


def _headline(money: Money) -> str:
    n, s = one(money.cost.num_gpus), money.system
    servers = one(money.cost.num_servers)
    return (
        f"{s.name}  {n:,.0f} x {s.chip.name} in {servers:,.0f} server{'s' if servers != 1 else ''}  "
        f"prices {money.prices.name}  basis {money.terms.basis}"
    )


def _notes(money: Money) -> Iterator[str]:
    a = assumptions(money)
    if not money.terms.rented:
        yield (
            f"method {a['method']}, servers {a['server_life_years']:g} years, {a['hours_a_year']:,.0f} hours a year, "
            f"interest {a['interest_rate']:.1%}, {a['usd_per_kwh']:.3g} USD/kWh, PUE {a['pue']:g}, grid {a['grid']}"
        )
    yield from (f"not priced: {line}" for line in money.unpriced)


def _summary(money: Money, columns: int | None) -> list[str]:
    n, f = one(money.cost.num_gpus), _figures(money)
    rows = [["", "all", "a GPU"]]
    if money.package is not None:
        ranks = 1 if money.system.package is None else money.system.package.num_ranks
        rows.append(["package, made for", "", format_usd(one(money.package.usd) / ranks)])
    rows += [[part.name, format_usd(one(part.usd)), format_usd(one(part.usd) / n)] for part in money.cost.bill.parts]
    rows += [
        [label, format_usd(f[name]), format_usd(f[name] / n)]
        for label, name in (("capital", "usd_capex"), ("operation", "usd_opex"), ("cost of owning", "usd_tco"))
    ]
    rows.append(["power at full load", format_si(f["power_w"], "W"), f"{f['power_w'] / n:,.0f} W"])
    made_kg = f["embodied_kg_co2e"]
    rows.append(["carbon of making it", f"{made_kg / 1e3:,.3g} tCO2e", f"{made_kg / n:,.0f} kgCO2e"])
    rows.append([f"a GPU-hour, {terms_text(money)}", "", format_usd(f["usd_per_gpu_hour"])])
    return [in_columns(rows, columns), *_levels(money, columns)]


def _levels(money: Money, columns: int | None) -> list[str]:
    """Switches and links of each level, as its topology has them."""
    rows = [
        [level.level.name, f"{one(w.switches):,.0f}", " + ".join(f"{one(k):,.0f}" for k in w.links)]
        for level in money.cost.levels
        if (w := level.wiring) is not None
    ]
    return [in_columns([["level", "switches", "links, tier by tier"], *rows], columns)] if rows else []


def _dies(money: Money, columns: int | None) -> list[str]:
    package = money.system.package
    assert package is not None
    return [line for die, count in package.assembly.counted_dies() for line in _die(money, die, one(count), columns)]


def _die(money: Money, die: Die, count: float, columns: int | None) -> Iterator[str]:
    bill = good_die(die, money.prices.section).bill()
    yield f"{die.name}: {count:g} a package, {one(die.area_mm2):g} mm2 of {die.node}"
    yield bill_text(bill, columns)
    shown = {k: v for _, line in bill.walk() for k, v in line.values.items()}
    yield in_columns([[k.replace("_", " "), f"{one(v):.5g}"] for k, v in shown.items()], columns)


def _package(money: Money, columns: int | None) -> list[str]:
    assert money.package is not None
    return [bill_text(money.package, columns)]


def _system(money: Money, columns: int | None) -> list[str]:
    return [bill_text(money.cost.bill, columns, {"a GPU": one(money.cost.num_gpus)}), *_levels(money, columns)]


def _tco(money: Money, columns: int | None) -> list[str]:
    n, hours = one(money.cost.num_gpus), money.owned.hours
    return [bill_text(money.owned.year, columns, {"a GPU": n, "a GPU-hour": n * hours})]


def _carbon(money: Money, columns: int | None) -> list[str]:
    n, parts = one(money.cost.num_gpus), money.made.parts_kg
    rows = [[k, f"{one(v):,.0f} kg", f"{one(v) / n:,.1f} kg"] for k, v in parts.items()]
    total = one(money.made.total_kg)
    return [
        in_columns([["made", "all", "a GPU"], *rows, ["total", f"{total:,.0f} kg", f"{total / n:,.1f} kg"]], columns)
    ]


_VIEWS: Mapping[str, Callable[[Money, int | None], list[str]]] = MappingProxyType(
    {"summary": _summary, "die": _dies, "package": _package, "system": _system, "tco": _tco, "carbon": _carbon}
)


def _bills(money: Money, view: str) -> list[Bill]:
    package = [] if money.package is None else [money.package]
    all_of = {"package": package, "system": [money.cost.bill], "tco": [money.owned.year, money.owned.gpu_hour]}
    if view in all_of:
        return all_of[view]
    return [*package, money.cost.bill, money.owned.year, money.owned.gpu_hour]
