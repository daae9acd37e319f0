"""Dies bonded face to face, copper on copper: wafer on wafer, or known good dies on a wafer of known good ones.

Ours, with the yields of CATCH: alignment, each connection, the dielectric between, each via through the silicon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from ....backends.machine.package import Assembly, Die
from ....backends.prices.silicon_schema import SiliconSection
from ....ir.sizes.expr import Num
from ...bill import Bill
from ..dies.die import GoodDie
from ..dies.tests_of_dies import die_test, final_test
from ..dies.wafers import dies_per_wafer
from .level import AssemblyContents, GoodAssembly, loss, test_line
from .machines import machine_usd

_PROCESS = "hybrid-1um"


def stacked(assembly: Assembly, contents: AssemblyContents, base_mm2: Num, book: SiliconSection) -> GoodAssembly:
    """Price one stack: cost = (contents + c_bond) / Y_bond.

    Args:
        assembly: the stack; its first content carries the others.
        contents: all of it, the base as well.
        base_mm2: area of what carries.
        book: the price book.
    """
    carried = np.maximum(np.subtract(contents.area_mm2, base_mm2), 0.0)
    bonds = _bonds(assembly, contents)
    bond = _bond(assembly, carried, bonds, base_mm2, book)
    bonded = contents.quality * bond_yield(carried, bonds, book)
    test = final_test(bonded, book)
    numbers = ("prices.packages.hybrid_bond.bond_yield", "prices.packages.hybrid_bond.dielectric_defects")
    return GoodAssembly(
        contents.usd,
        Bill("bumps", 0.0),
        (bond,),
        loss("package defects", bond.usd, test.shipped, numbers),
        loss("wasted dies", contents.usd, test.shipped, numbers),
        test_line(test),
        base_mm2,
        base_mm2,
        test.shipped,
        test.quality,
    )


def bond_yield(carried_mm2: Num, bonds: Num, book: SiliconSection) -> Num:
    """Y = align^n bond^(A / pitch^2) tsv^(A d_tsv) / (1 + D A), for an area A that is bonded."""
    prices = book.packages.hybrid_bond
    joints = np.power(prices.bond_yield.si, np.divide(carried_mm2, prices.pitch.si**2))
    vias = np.power(prices.tsv_yield.si, np.multiply(carried_mm2, prices.tsv_density.si))
    aligned = np.power(prices.alignment_yield.si, bonds)
    return aligned * joints * vias / (1.0 + np.multiply(carried_mm2, prices.dielectric_defects.si))


def of_whole_wafers(dies: tuple[GoodDie, ...], book: SiliconSection) -> tuple[GoodDie, ...]:
    """Price dies whose wafers are bonded before any is tested: cost = sum n W / (N prod Y^count), N of the largest.

    A kind has wafers of its own, n for each stack of wafers: dies of it that fit one base lie on one wafer, side by
    side. The whole stack is tested once, with its first die.
    """
    largest = _largest([d.die for d in dies])
    number = dies_per_wafer(largest, dies[0].die.aspect, book)
    good = reduce(lambda all_good, d: np.multiply(all_good, np.power(d.good, d.die.count)), dies, np.ones(()))
    each = [number * d.die.count / _wafers(d.die, largest) for d in dies]
    return tuple(_of_wafer(d, n, good, place == 0, book) for place, (d, n) in enumerate(zip(dies, each, strict=True)))


def _of_wafer(die: GoodDie, number: Num, good: Num, first: bool, book: SiliconSection) -> GoodDie:
    raw = np.divide(die.wafer_usd, number)
    test = die_test(good, die.die.area_mm2, raw, book)
    quality = np.power(test.quality, np.divide(1.0, die.die.count)) if first else 1.0
    test_usd = np.divide(test.test_usd, die.die.count) if first else 0.0
    return replace(
        die, raw_usd=raw, dies_per_wafer=number, good=good, test=replace(test, quality=quality, test_usd=test_usd)
    )


def _largest(dies: Sequence[Die]) -> Num:
    return reduce(np.maximum, (die.area_mm2 for die in dies))


def _wafers(die: Die, largest_mm2: Num) -> Num:
    """Count the wafers of one kind in a stack of wafers."""
    side_by_side = np.floor(np.divide(largest_mm2, die.area_mm2) * (1.0 + 1e-12))
    return np.ceil(np.divide(die.count, side_by_side))


def _bonds(assembly: Assembly, contents: AssemblyContents) -> Num:
    """Count what is bonded to what is below: dies one by one, or wafers."""
    if assembly.bonding == "die_to_wafer":
        return np.subtract(contents.pieces, 1.0)
    dies = [part for part in assembly.contents if isinstance(part, Die)]
    largest = _largest(dies)
    return sum((_wafers(die, largest) for die in dies), start=-1.0)


def _bond(assembly: Assembly, carried: Num, bonds: Num, base_mm2: Num, book: SiliconSection) -> Bill:
    """Materials by area; machines by the die, or by the wafer shared among its dies."""
    process = book.processes[_PROCESS]
    materials = book.packages.hybrid_bond.materials.si
    if assembly.bonding == "die_to_wafer":
        machines = machine_usd(bonds, process, book.machines, one_by_one=True)
    else:
        number = dies_per_wafer(base_mm2, 1.0, book)
        machines = machine_usd(1.0, process, book.machines, one_by_one=True) * bonds / number
    values = {"area_mm2": carried, "materials_usd_mm2": materials, "machines_usd": machines}
    numbers = ("prices.packages.hybrid_bond.materials", f"prices.processes.{_PROCESS}.bonding_machine")
    return Bill("bonds", carried * materials + machines, "area_mm2 * materials_usd_mm2 + machines_usd", values, numbers)
