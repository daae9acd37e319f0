"""What several systems cost, side by side: bought at market prices, built of their parts, and rented."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...cost.money import Money, Terms, system_money
from ...ir import __version__
from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_usd
from ..columns import in_columns
from ..numbers import one
from ..results.documents import DocumentResult
from .bills import right
from .books import order_notes, orders_record
from .money import reservations, usd_text

if TYPE_CHECKING:
    from ...backends.machine.system import System

SCHEMA = "slipstick/costs/1"
# What a system is priced by, the first orders the rows.
BASES: Mapping[str, Terms] = MappingProxyType(
    {"market": Terms(), "build": Terms(basis="build"), "rent": Terms(rented=True)}
)
_HEADING = (
    "each GPU",
    "GPUs",
    "package",
    "capex",
    "built",
    "hour",
    "hour, built",
    "hour, rented",
    "power",
    "carbon",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCosts:
    """What one system costs on each basis.

    Attributes:
        system: the system.
        num_gpus: its accelerators.
        money: what it costs, by basis; a basis without prices is not there.
        missing: why not, by basis.
    """

    system: System
    num_gpus: int
    money: Mapping[str, Money]
    missing: Mapping[str, str]

    @property
    def usd_per_gpu_hour(self) -> float:
        """Dollars of a GPU-hour on the first basis that there is; infinite where there is none."""
        return next((one(m.owned.usd_per_gpu_hour) for m in self.money.values()), float("inf"))

    @property
    def dates(self) -> tuple[str, str, int, int]:
        """The oldest and the newest date of prices in its bills, how many have one, and how many prices there are."""
        paths = {n for m in self.money.values() for bill in m.bills for _, line in bill.walk() for n in line.numbers}
        records = [r for m in self.money.values() for r in (*m.system.sources, *m.prices.records)]
        prices = {r.path: r.as_of for r in records if r.path in paths and r.unit.startswith("USD")}
        if "rent" in self.money:
            rent = self.money["rent"].prices.section.cloud[self.system.chip.name].price
            prices["rent"] = rent.as_of
        dated = sorted(date for date in prices.values() if date)
        return (dated[0], dated[-1], len(dated), len(prices)) if dated else ("", "", 0, len(prices))


def costs_of(system: System, num_gpus: int) -> SystemCosts:
    """Price a system on every basis; what one of them does not know is said, and the others stand."""
    money, missing = dict[str, Money](), dict[str, str]()
    for basis, terms in BASES.items():
        try:
            money[basis] = system_money(system, num_gpus, terms)
        except UnknownNameError as error:
            missing[basis] = f"prices.cloud has no {system.chip.name}" if terms.rented else str(error)
        except UsageError as error:
            missing[basis] = str(error)
    return SystemCosts(system=system, num_gpus=num_gpus, money=money, missing=missing)


def costs_result(books: Sequence[Sequence[SystemCosts]]) -> DocumentResult:
    """Return systems side by side as a result, the cheapest GPU-hour first; of several books those of the first.

    Notes say how the order differs under the others.
    """
    ordered, *others = (sorted(systems, key=lambda one_of: one_of.usd_per_gpu_hour) for systems in books)
    orders = {_book(found): [one_of.system.name for one_of in found] for found in (ordered, *others)}
    return DocumentResult(
        title="costs of systems",
        document=lambda: json_text(
            {
                "schema": SCHEMA,
                "tool_version": __version__,
                "systems": [_record(found) for found in ordered],
                **orders_record(orders if others else {}),
            },
            indent=1,
        ),
        screen=lambda width: "\n".join([costs_text(ordered, width).rstrip("\n"), *order_notes(orders), ""]),
    )


def costs_text(systems: Sequence[SystemCosts], width: int | None = None) -> str:
    """Return a line for each system, then what sums leave out and of which dates their prices are."""
    table = in_columns(right([[*_HEADING], *map(_row, systems)]), width)
    return "\n".join([f"prices {_book(systems)}", table, *_notes(systems), ""])


def _book(systems: Sequence[SystemCosts]) -> str:
    return ", ".join(sorted({m.prices.name for found in systems for m in found.money.values()}))


def _row(found: SystemCosts) -> list[str]:
    n, money = found.num_gpus, found.money

    def usd(basis: str, value: Callable[[Money], float]) -> str:
        return usd_text(money[basis], value(money[basis])) if basis in money else "-"

    def capex(m: Money) -> float:
        return one(m.owned.capex_usd) / n

    def hour(m: Money) -> float:
        return one(m.owned.usd_per_gpu_hour)

    any_of = next(iter(money.values()), None)
    package = "-" if any_of is None or any_of.package is None else format_usd(one(any_of.package.usd))
    return [
        found.system.name,
        f"{n:,}",
        package,
        usd("market", capex),
        usd("build", capex),
        usd("market", hour),
        usd("build", hour),
        usd("rent", hour),
        "-" if any_of is None else f"{one(any_of.cost.power_w) / n:,.0f} W",
        "-" if any_of is None else f"{one(any_of.made.total_kg) / n:,.0f} kgCO2e",
    ]


def _notes(systems: Sequence[SystemCosts]) -> Iterator[str]:
    """Yield dates of prices, then what is not known of each system, once for all bases."""
    for found in systems:
        first, last, dated, of = found.dates
        when = f"{dated} dated {first}" + (f" to {last}" if last != first else "") if dated else "none dated"
        yield f"{found.system.name}: {of} prices, {when}"
    for found in systems:
        told = dict.fromkeys(line for m in found.money.values() for line in reservations(m))
        yield from (f"{found.system.name}: {line}" for line in told)
        for basis, why in found.missing.items():
            yield f"{found.system.name}, {basis}: {why}"


def _record(found: SystemCosts) -> Mapping[str, object]:
    first, last, dated, of = found.dates
    return {
        "system": found.system.name,
        "chip": found.system.chip.name,
        "num_gpus": found.num_gpus,
        "bases": {
            basis: {
                "standing": m.standing,
                "without": list(m.without),
                "usd_capex": one(m.owned.capex_usd),
                "usd_tco": one(m.owned.tco_usd),
                "usd_per_gpu_hour": one(m.owned.usd_per_gpu_hour),
                "power_w": one(m.cost.power_w),
                "embodied_kg_co2e": one(m.made.total_kg),
                "outdated": list(m.outdated),
            }
            for basis, m in found.money.items()
        },
        "missing": dict(found.missing),
        "prices": {"count": of, "dated": dated, "oldest": first or None, "newest": last or None},
    }
