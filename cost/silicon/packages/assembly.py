"""Packages as a tree, after CATCH: machines and yields of placing and bonding, tests that let some bad ones through.

cost = (self + sum children + c_asm + c_test) / Y_test, Y = q_self prod q_children Y_asm, q = Y / Y_test.
A substrate's own test has the coverage of dies; a bridge is a buried child that adds no area.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....backends.machine.package import Assembly
from ....backends.prices.silicon_schema import ProcessPrices, SiliconSection, WiringPrices
from ....ir.errors import UnknownNameError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ...bill import Bill
from ..dies.pads import pads_of
from ..dies.tests_of_dies import Tested, final_test, passing
from ..dies.wafers import dies_per_wafer, field_use
from .joints import bridges, carrier_mm2, embedded, layer_factor, wiring, wiring_yield
from .level import AssemblyContents, GoodAssembly, loss, test_line
from .machines import machine_usd


@dataclass(frozen=True, slots=True)
class Self:
    """The substrate by itself: what one costs raw, and what its test makes of those."""

    area_mm2: Num
    raw: Bill
    test: Tested

    @property
    def usd(self) -> Num:
        """One that passed."""
        return self.raw.usd / self.test.shipped


def put_together(assembly: Assembly, contents: AssemblyContents, book: SiliconSection) -> GoodAssembly:
    """Price one assembly by its process (`assembly_of`) in the book; wires are set down on an organic substrate."""
    level = _level(assembly, contents, book)
    if assembly.joint in ("organic", "embedded_bridge"):
        return level
    below = Assembly(f"{assembly.name} substrate", "organic", (assembly,))
    on = _level(below, AssemblyContents(level.usd, level.carrier_mm2, 1.0, level.quality), book)
    return replace(
        level,
        raw=(*level.raw, *_below(on.raw)),
        package_defects=Bill.of("package defects", [*level.package_defects.parts, *_below(on.package_defects.parts)]),
        wasted=Bill.of(
            "wasted dies", [replace(level.wasted, name="contents"), replace(on.wasted, name=level.raw[0].name)]
        ),
        test=Bill.of("test", [level.test, replace(on.test, name="test below")]),
        footprint_mm2=on.footprint_mm2,
        good=level.good * on.good,
        quality=on.quality,
    )


def _below(lines: tuple[Bill, ...]) -> list[Bill]:
    return [replace(line, name=f"{line.name} below") for line in lines]


def _level(assembly: Assembly, contents: AssemblyContents, book: SiliconSection) -> GoodAssembly:
    process = process_of(assembly, book)
    area = _substrate_mm2(assembly, contents, process, book)
    own = _self(assembly, area, contents, book)
    joining = _joining(assembly, contents, process, book)
    buried = bridges(assembly, contents, book) if assembly.joint.endswith("bridge") else ()
    holding = embedded(assembly, contents, book) if buried else 1.0
    good = own.test.quality * contents.quality * holding * bond_yield(assembly, contents, process, book)
    test = final_test(good, book)
    begun = own.usd + joining.usd + sum((line.usd for line in buried), start=0.0)
    lost = [
        loss("substrates", own.raw.usd, own.test.shipped),
        loss("assemblies", begun, test.shipped, ("prices.tests.assembly_coverage",)),
    ]
    return GoodAssembly(
        contents.usd,
        Bill("bumps", 0.0),
        (own.raw, joining, *buried),
        Bill.of("package defects", lost),
        loss("wasted dies", contents.usd, test.shipped, ("prices.tests.assembly_coverage",)),
        test_line(test),
        area,
        area,
        test.shipped,
        test.quality,
    )


def process_of(assembly: Assembly, book: SiliconSection) -> ProcessPrices:
    """Return how an assembly of its joint is put together; UnknownNameError for a process that the book has not."""
    name = book.assembly_of.get(assembly.joint, "")
    if name not in book.processes:
        raise UnknownNameError.of(f"process of assembly_of.{assembly.joint}", name, book.processes)
    return book.processes[name]


def bond_yield(assembly: Assembly, contents: AssemblyContents, process: ProcessPrices, book: SiliconSection) -> Num:
    """Y = align^n bond^n_bonds / (1 + D A), for an area A that is bonded."""
    aligned = np.power(process.alignment_yield.si, contents.pieces)
    bonds = sum((pads_of(part, process, book) * part.count for part in assembly.contents), start=0.0)
    joints = np.power(process.bond_yield.si, bonds)
    return aligned * joints / (1.0 + np.multiply(contents.area_mm2, process.dielectric_defects.si))


def _substrate_mm2(assembly: Assembly, contents: AssemblyContents, process: ProcessPrices, book: SiliconSection) -> Num:
    """Pieces with the space between them and the edge around, or as described; no less than the pads below take."""
    if assembly.substrate_mm2 is not None:
        return carrier_mm2(assembly, contents.area_mm2, 1.0)
    mean = np.divide(contents.area_mm2, contents.pieces)
    spaced = contents.pieces * np.square(np.sqrt(mean) + process.separation.si)
    bounded = np.square(np.sqrt(spaced) + 2.0 * process.edge_exclusion.si)
    pads = sum((pads_of(part, process, book) * part.count for part in assembly.contents), start=0.0)
    return np.maximum(bounded, pads * process.pitch.si**2)


def _self(assembly: Assembly, area: Num, contents: AssemblyContents, book: SiliconSection) -> Self:
    if assembly.joint in ("organic", "embedded_bridge"):
        organic = book.packages.organic
        layers = layer_factor(area, contents.pieces, organic)
        values = {"area_mm2": area, "cost_usd_mm2": organic.cost.si, "layers": layers}
        numbers = ("prices.packages.organic.cost",)
        raw = Bill("substrate", area * organic.cost.si * layers, "area_mm2 * cost_usd_mm2 * layers", values, numbers)
        return Self(area, raw, passing(1.0, 1.0, 0.0))
    prices = wiring(assembly.joint, book)
    number = dies_per_wafer(area, 1.0, book)
    wafer = wiring_wafer_usd(area, prices, book)
    values = {"wafer_usd": wafer, "dies_per_wafer": number}
    key = "wafer_price" if book.model("wafer_cost") == "wafer" else "processed_cost"
    usd = np.where(np.greater(number, 0.0), np.divide(wafer, np.maximum(number, 1e-9)), np.inf)
    raw = Bill(assembly.joint, usd, "wafer_usd / dies_per_wafer", values, (f"prices.packages.{assembly.joint}.{key}",))
    return Self(area, raw, passing(wiring_yield(area, prices), book.tests.coverage.si, 0.0))


def wiring_wafer_usd(area_mm2: Num, prices: WiringPrices, book: SiliconSection) -> Num:
    """Price a wafer of wires (`models.wafer_cost`): as quoted, or by its area and the lithography left unused."""
    if book.model("wafer_cost") == "wafer" or prices.processed_cost is None:
        return prices.wafer_price.si
    litho = 0.0 if prices.litho_share is None else prices.litho_share.si
    radius = book.wafer.diameter.si / 2.0 - book.wafer.priced_edge.si
    return prices.processed_cost.si * np.pi * radius**2 * ((1.0 - litho) + litho / field_use(area_mm2, book))


def _joining(assembly: Assembly, contents: AssemblyContents, process: ProcessPrices, book: SiliconSection) -> Bill:
    """Machines by the piece, materials by the area that is bonded."""
    machines = machine_usd(contents.pieces, process, book.machines)
    materials = process.materials.si
    values = {"machines_usd": machines, "area_mm2": contents.area_mm2, "materials_usd_mm2": materials}
    name = book.assembly_of[assembly.joint]
    numbers = tuple(f"prices.processes.{name}.{key}" for key in ("materials", "bonding_machine", "pick_place_machine"))
    usd = machines + contents.area_mm2 * materials
    return Bill("joining", usd, "machines_usd + area_mm2 * materials_usd_mm2", values, numbers)
