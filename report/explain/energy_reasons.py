"""Why a step takes its joules: every part as a product of printed numbers, which add up to the sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...cost.ownership.activity import BEYOND, amounts, idle_w
from ...cost.ownership.energy import joules_interval
from ...cost.ownership.levels import levels_of, memory_kind, origin_of
from ...cost.ownership.server import watts_of
from ...cost.ownership.tco import pue_of
from ...ir.sizes.expr import Num
from ...ir.units import format_si
from ..numbers import one, shown_with_source

if TYPE_CHECKING:
    from ...cost.money import StepMoney
    from ...driver.estimate import Estimate
    from ...driver.serve.answer import ServeMoney


def joules_lines(answer: Estimate | None, found: StepMoney | ServeMoney, with_building: bool) -> Iterator[str]:
    """Yield the parts of the joules of a step, the largest first, each with the terms that make it.

    Those of a request of a server are means over its prefills and decode steps, and have no terms of their own.
    """
    energy, money = found.energy, found.money
    parts = {**energy.parts_j, **({"building": energy.building_j} if with_building else {})}
    shown = {name: joules for name, joules in parts.items() if one(joules)}
    yield "joules: " + ", ".join(f"{name} {joules_text(joules)}" for name, joules in shown.items())
    levels = levels_of(money.system, money.prices.section.energy)
    between = joules_interval(energy, money.system, money.prices)
    factors = (f"{name} x {low:.3g} .. {high:.3g}" for name, (low, high) in between.factors.items())
    yield f"machines {joules_text(between.low_j)} .. {joules_text(between.high_j)}: {', '.join(factors)}"
    if answer is None:
        return
    terms = _terms(answer, found)
    dtype, chip = str(answer.table.lowered.source.dtype), ("chip.energy.logic", "chip.energy.wires")
    paths: Mapping[str, tuple[str, ...]] = {
        "idle": ("chip.power", "prices.energy.idle_share"),
        "packages": ("chip.power", "prices.energy.average_load"),
        "matrix units": (f"prices.energy.compute.{dtype}", "chip.energy.matmul", "chip.energy.narrow", *chip[:1]),
        "vector units": ("prices.energy.vector", "chip.energy.vector"),
        "memory": (f"prices.energy.memory.{memory_kind(money.system)}", "chip.energy.memory"),
        "cache": ("prices.energy.cache", "prices.energy.wires", "chip.energy.cache", *chip),
        "wires": tuple(link.path for link in levels.wires.links),
        "hosts": ("server.rest_power", "prices.energy.host_load"),
        "network": ("prices.energy.average_load",),
        "building": (f"prices.facility.pue.{money.cost.estate.cooling}",),
        BEYOND: ("chip.power", "chip.power_limit"),
    }
    for name in sorted(shown, key=lambda part: -one(shown[part])):
        yield f"{name} = {joules_text(shown[name])}, {format_si(one(shown[name]) / one(energy.time_s), 'W')}"
        yield f"  = {terms[name]}"
        for record in (*money.system.sources, *money.prices.records):
            if record.path in paths[name]:
                yield f"  {record.path}: {shown_with_source(record)}"


def joules_text(joules: Num) -> str:
    """Write joules with seven digits."""
    return format_si(one(joules), "J", 7)


def _terms(answer: Estimate, found: StepMoney | ServeMoney) -> Mapping[str, str]:
    """Products of numbers by part; their values are the joules of the part."""
    energy, money, table = found.energy, found.money, answer.table
    system, section = money.system, money.prices.section.energy
    seconds, bought = f"{one(energy.time_s):.6g} s", f"{one(energy.num_bought):.0f} packages"
    load, used = section.average_load.si, section.host_load.si if "idle" in energy.parts_j else section.average_load.si
    hosts_w = one(money.cost.servers.power_w) - one(energy.num_bought) * one(watts_of(system.chip))
    terms = {
        "idle": f"{bought} x {one(idle_w(system, money.prices)):.6g} W at rest x {seconds}",
        "packages": f"{bought} x {one(watts_of(system.chip)):.6g} W x {load:g} x {seconds}",
        "hosts": f"{hosts_w:.6g} W of servers and racks without packages x {used:g} x {seconds}",
        "network": f"{one(money.cost.network.power_w):.6g} W of switches and optics x {load:g} x {seconds}",
        "building": f"{pue_of(money.prices, money.cost.estate.cooling) - 1.0:.6g} x {one(energy.machines_j):.6g} J",
        BEYOND: "what nodes would draw beyond the power of a package, and is not drawn",
    }
    if "idle" in energy.parts_j:
        products: dict[str, list[str]] = {}
        levels = levels_of(system, section)
        for (part, unit), (amount, each) in amounts(levels, table.timing, table.plans).items():
            name = "wires" if part == "network" else part
            products.setdefault(name, []).append(f"{one(amount):.6g} {unit} x {one(each) * 1e12:.6g} pJ")
        terms |= {part: " + ".join(products[part]) for part in products}
        measured = system.chip.energy is not None and system.chip.energy.matmul_j_per_flop is not None
        by_law = ("vector units", "cache") if measured else ("matrix units", "vector units", "cache")
        terms |= {part: f"{terms[part]}; {origin_of(system)}" for part in by_law if part in terms}
    return terms
