"""Packages by class, after Chiplet Actuary: organic substrates, fan-out, interposers; ours: bridges of silicon.

Dies are bonded one by one, each with the same yield. Substrates and wires are made, and where chips come last tested,
before anything stands on them. Areas in mm2, money in USD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....backends.machine.package import Assembly, Joint
from ....backends.prices.silicon_schema import OrganicPrices, SiliconSection, WiringPrices
from ....ir.sizes.expr import Num
from ...bill import Bill
from ..dies.wafers import dies_per_wafer
from ..dies.yields import negative_binomial
from .level import AssemblyContents, GoodAssembly, loss

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_TEST = Bill("test", 0.0)


def joined(assembly: Assembly, contents: AssemblyContents, book: SiliconSection) -> GoodAssembly:
    """Price one assembly by its joint; hybrid bonds are priced in `hybrid`."""
    price: dict[str, Callable[[Assembly, AssemblyContents, SiliconSection], GoodAssembly]] = {
        "organic": on_organic,
        "embedded_bridge": on_organic,
        "interposer": on_wiring,
        "fan_out": on_wiring,
        "fan_out_bridge": on_wiring,
    }
    return price[assembly.joint](assembly, contents, book)


def on_organic(assembly: Assembly, contents: AssemblyContents, book: SiliconSection) -> GoodAssembly:
    """Flip chips on an organic substrate, with bridges embedded in it or without.

    A = 4 sum A; c = 0.005 A layers; all is lost where one of n bonds fails: Y = y^n; bridges are lost with the
    substrate that one of them fails in: y_embed^bridges. A bad die that its test let through is found as a bad bond is.
    """
    organic = book.packages.organic
    area = carrier_mm2(assembly, contents.area_mm2, organic.area_factor.si)
    substrate = _substrate(area, layer_factor(area, contents.pieces, organic), organic)
    buried = bridges(assembly, contents, book) if assembly.joint == "embedded_bridge" else ()
    holding = embedded(assembly, contents, book) if buried else 1.0
    bonded = np.power(organic.bonding_yield.si, contents.pieces) * contents.quality
    bumps = _bumps(contents.area_mm2, organic.bump_cost.si, "organic")
    raw = (substrate, *buried)
    numbers = ("prices.packages.organic.bonding_yield",)
    return GoodAssembly(
        contents.usd,
        bumps,
        raw,
        loss("package defects", _sum(raw), holding * bonded, numbers),
        loss("wasted dies", contents.usd + bumps.usd, bonded, numbers),
        _NO_TEST,
        area,
        area,
        bonded,
    )


def on_wiring(assembly: Assembly, contents: AssemblyContents, book: SiliconSection) -> GoodAssembly:
    """Chips on an interposer or layers of wires, and that on an organic substrate.

    y1 of the wires and their bridges, y2 = y_bond^n, y3 of the bond to the substrate. Chips last: wires are lost by
    1 / (y1 y2 y3), chips by 1 / (y2 y3). Chips first: both by 1 / (y1 y3). The substrate by 1 / y3. Sets with a bad
    die that its test let through are lost before the substrate: y2 or y1 has a factor of their quality.
    """
    prices = wiring(assembly.joint, book)
    organic = book.packages.organic
    area = carrier_mm2(assembly, contents.area_mm2, prices.area_factor.si)
    bumps = _bumps(contents.area_mm2, prices.bump_cost.si, assembly.joint)
    wires = (_wires(assembly, area, book), *(bridges(assembly, contents, book) if _bridged(assembly) else ()))
    below = organic.carrier_factor.si * area
    substrate = _substrate(below, 1.0, organic)
    made = wiring_yield(area, prices) * (embedded(assembly, contents, book) if _bridged(assembly) else 1.0)
    bonded = np.power(prices.bonding_yield.si, contents.pieces)
    set_down = organic.bonding_yield.si
    chips_good = (bonded if assembly.order == "chip_last" else made) * contents.quality * set_down
    wires_good = chips_good * made if assembly.order == "chip_last" else chips_good
    numbers = tuple(f"prices.packages.{assembly.joint}.{key}" for key in ("bonding_yield", "defect_density"))
    lost = [loss(assembly.joint, _sum(wires), wires_good, numbers), loss("substrate", substrate.usd, set_down)]
    return GoodAssembly(
        contents.usd,
        bumps,
        (*wires, substrate),
        Bill.of("package defects", lost),
        loss("wasted dies", contents.usd + bumps.usd, chips_good, numbers),
        _NO_TEST,
        area,
        below,
        chips_good,
    )


def wiring(joint: Joint, book: SiliconSection) -> WiringPrices:
    """Return what the book has of the wires of a joint."""
    packages = book.packages
    if joint == "interposer":
        return packages.interposer
    return packages.fan_out_bridge if joint == "fan_out_bridge" else packages.fan_out


def wiring_yield(area_mm2: Num, prices: WiringPrices) -> Num:
    """Return the yield of an interposer or of layers of wires, with their own clustering."""
    defects = prices.defect_density.si * prices.critical_area.si
    return negative_binomial(area_mm2, defects, prices.cluster.si)


def carrier_mm2(assembly: Assembly, contents_mm2: Num, factor: float) -> Num:
    """Return the area of what carries the contents: as described, or a factor of their area."""
    return np.multiply(contents_mm2, factor) if assembly.substrate_mm2 is None else assembly.substrate_mm2


def layer_factor(area_mm2: Num, pieces: Num, organic: OrganicPrices) -> Num:
    """Return what layers of wires make of a substrate's price: 1 under a single die, more by area under several."""
    several = np.where(
        np.greater(area_mm2, organic.large_area.si),
        organic.large_layers.si,
        np.where(np.greater(area_mm2, organic.medium_area.si), organic.medium_layers.si, organic.small_layers.si),
    )
    return np.where(np.equal(pieces, 1.0), 1.0, several)


def num_bridges(assembly: Assembly, contents: AssemblyContents) -> Num:
    """Return the bridges of an assembly: as described, or one between each two neighbours."""
    return np.subtract(contents.pieces, 1.0) if assembly.bridges is None else assembly.bridges


def wafer_part_usd(area_mm2: Num, price_usd: float, book: SiliconSection) -> Num:
    """Return the price of an area of a wafer that is not logic: W / N, without end beyond a wafer."""
    number = dies_per_wafer(area_mm2, 1.0, book)
    return np.where(np.greater(number, 0.0), np.divide(price_usd, np.maximum(number, 1e-9)), np.inf)


def bridges(assembly: Assembly, contents: AssemblyContents, book: SiliconSection) -> tuple[Bill, ...]:
    """Bridges: small dies of an interposer's wafer, those that fail their test included, and embedding them."""
    bridge, silicon = book.packages.bridge, book.packages.interposer
    die = wafer_part_usd(bridge.area.si, silicon.wafer_price.si, book) / wiring_yield(bridge.area.si, silicon)
    count = num_bridges(assembly, contents)
    values = {"bridges": count, "die_usd": die, "embed_usd": bridge.embed_cost.si}
    numbers = ("prices.packages.bridge.embed_cost", "prices.packages.bridge.area")
    return (Bill("bridges", count * (die + bridge.embed_cost.si), "bridges * (die_usd + embed_usd)", values, numbers),)


def embedded(assembly: Assembly, contents: AssemblyContents, book: SiliconSection) -> Num:
    """Return the part of carriers whose bridges are all good: y_embed^n."""
    return np.power(book.packages.bridge.embed_yield.si, num_bridges(assembly, contents))


def _wires(assembly: Assembly, area: Num, book: SiliconSection) -> Bill:
    prices = wiring(assembly.joint, book)
    made = wafer_part_usd(area, prices.wafer_price.si, book)
    bumps = book.packages.organic.bump_cost.si
    values = {"area_mm2": area, "of_wafer_usd": made, "bumps_usd_mm2": bumps}
    numbers = (f"prices.packages.{assembly.joint}.wafer_price", "prices.packages.organic.bump_cost")
    return Bill(assembly.joint, made + bumps * area, "of_wafer_usd + bumps_usd_mm2 * area_mm2", values, numbers)


def _substrate(area: Num, layers: Num, organic: OrganicPrices) -> Bill:
    values = {"area_mm2": area, "cost_usd_mm2": organic.cost.si, "layers": layers}
    usd = area * organic.cost.si * layers
    return Bill("substrate", usd, "area_mm2 * cost_usd_mm2 * layers", values, ("prices.packages.organic.cost",))


def _bumps(area: Num, cost: float, joint: str) -> Bill:
    values = {"area_mm2": area, "cost_usd_mm2": cost}
    return Bill("bumps", area * cost, "area_mm2 * cost_usd_mm2", values, (f"prices.packages.{joint}.bump_cost",))


def _bridged(assembly: Assembly) -> bool:
    return assembly.joint == "fan_out_bridge"


def _sum(lines: tuple[Bill, ...]) -> Num:
    return sum((line.usd for line in lines), start=0.0)
