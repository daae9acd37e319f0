"""Carbon dioxide, or what warms as much: of making machines, and of the electricity that they take.

    die       A (e_fab c_grid + gases + materials)/Y for each wafer area;   package  a sum for each die and stack
    memory    kg/B by kind;   server, switch  a sum each, over the life of servers

Source of the form: ACT, Gupta et al., ISCA 2022 (github facebookresearch/ACT); numbers in `prices.carbon`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...backends.machine.package import Die, Package, Stack
from ...backends.machine.system import System
from ...backends.prices.section import Prices
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .owned import entry
from .server import host_bytes
from .system import SystemCost


@dataclass(frozen=True, slots=True)
class Embodied:
    """What making a system emitted: kg by part, and what nobody can say."""

    parts_kg: Mapping[str, Num]
    unknown: tuple[str, ...] = ()

    @property
    def total_kg(self) -> Num:
        """All parts."""
        return sum(self.parts_kg.values(), start=0.0)


def embodied(cost: SystemCost, system: System, prices: Prices) -> Embodied:
    """Return what making a system emitted, part by part; a node or memory without a number is named in `unknown`."""
    c = prices.section.carbon
    parts: dict[str, Num] = {"servers": cost.num_servers * c.server.si, "switches": _switches_kg(cost, prices)}
    unknown: list[str] = []
    if system.package is None:
        unknown.append("carbon of packages: add a section package to the chip")
    else:
        count = cost.num_servers * system.node_size / system.package.num_ranks
        lacking = _lacking(system.package, prices)
        unknown += lacking
        if not lacking:
            parts["packages"] = count * package_kg(system.package, prices)
    num_bytes = host_bytes(system)
    if num_bytes is None:
        unknown.append("carbon of host memory: add node.host_memory to the system")
    else:
        parts["host memory"] = cost.num_servers * num_bytes * c.memory["ddr5"].si
    return Embodied(parts, tuple(unknown))


def _lacking(package: Package, prices: Prices) -> list[str]:
    """Name what of a package has no number in the book."""
    c = prices.section.carbon
    fabs = [die.node for die, _ in package.assembly.counted_dies() if die.node not in c.fabs]
    kinds = [stack.kind for stack, _ in package.counted_stacks() if stack.kind not in c.memory]
    paths = [*(f"fabs.{node}" for node in fabs), *(f"memory.{kind}" for kind in kinds)]
    return [f"carbon of packages: set prices.carbon.{path}" for path in dict.fromkeys(paths)]


def operational_kg(energy_j: Num, prices: Prices) -> Num:
    """Return what electricity emits on the grid where the machines run.

    >>> from slipstick.backends.prices.book import load_prices
    >>> round(operational_kg(3.6e6, load_prices()), 3)  # a kilowatt-hour
    0.369
    """
    c = prices.section.carbon
    return energy_j * c.grids[c.grid].si


def package_kg(package: Package, prices: Prices) -> Num:
    """Return what making a package emitted: dies, memory, and a sum for each of them that is put together."""
    dies = sum((_die_kg(die, prices) * count for die, count in package.assembly.counted_dies()), start=0.0)
    return dies + sum((_stack_kg(s, prices) * count for s, count in package.counted_stacks()), start=0.0)


def _die_kg(die: Die, prices: Prices) -> Num:
    c = prices.section.carbon
    fab = entry(c.fabs, "node of prices.carbon.fabs", die.node)
    of_area = fab.energy.si * c.grids[c.fab_grid].si + fab.gases.si + fab.materials.si
    return die.area_mm2 * of_area / c.fab_yield.si + c.package.si


def _stack_kg(stack: Stack, prices: Prices) -> Num:
    c = prices.section.carbon
    return stack.num_bytes * entry(c.memory, "memory of prices.carbon", stack.kind).si + c.package.si


def _switches_kg(cost: SystemCost, prices: Prices) -> Num:
    book = prices.section
    found: Num = 0.0
    for level in cost.levels:
        equipment = level.level.equipment
        if equipment is not None and level.wiring is not None and equipment.switch:
            own = book.switches[equipment.switch].carbon
            found = found + level.wiring.switches * (book.carbon.switch if own is None else own).si
    return found
