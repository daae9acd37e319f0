"""The area of a die from what is on it: the inverse of the engine, which makes the most of an area.

The circuits are those of the cost model of LLMCompass (Zhang et al., ISCA 2024), as published in its source:
transistors over the density of a node, memory cells over the part of a cache that they are, pads that do not shrink.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .data import Technology
from .files.area_schema import MultiprocessorSection

# Bits of the mantissa, whose square a unit of arithmetic grows with.
_FP64, _FP32, _FP16 = 52, 23, 10
# EMPIRE's fit of register files is for 90 nm, with so many transistors a mm2 (CSET AI Chips 2020).
_DENSITY_90NM = 1.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Floorplan:
    """What is on a die; numbers may be arrays.

    Attributes:
        node: technology node.
        multiprocessor: by name of the technology's data.
        num_sms: how many, those included that are later switched off.
        l2_bytes: the cache that all share.
        phys: how many of each kind leave the die: stacks of memory, links, lanes of PCIe, modules of a D2D interface.
    """

    node: str
    multiprocessor: str
    num_sms: Num
    l2_bytes: Num
    phys: tuple[tuple[str, Num], ...] = ()


@dataclass(frozen=True, slots=True)
class CoreAreas:
    """A multiprocessor by part."""

    control_mm2: float
    vector_mm2: float
    matrix_mm2: float
    registers_mm2: float
    l1_mm2: float

    @property
    def total_mm2(self) -> float:
        """All of it."""
        return self.control_mm2 + self.vector_mm2 + self.matrix_mm2 + self.registers_mm2 + self.l1_mm2


@dataclass(frozen=True, slots=True)
class DieAreas:
    """A die by part, in the words of photos of dies."""

    cores_mm2: Num
    interconnect_mm2: Num
    cache_mm2: Num
    memory_phy_mm2: Num
    memory_controller_mm2: Num
    network_phy_mm2: Num
    network_controller_mm2: Num
    d2d_mm2: Num
    other_mm2: Num

    def parts(self) -> Iterator[tuple[str, Num]]:
        """Yield each part by name, in the order of the fields."""
        for name in self.__slots__:
            yield name.removesuffix("_mm2"), getattr(self, name)

    @property
    def total_mm2(self) -> Num:
        """The whole die."""
        total: Num = 0.0
        for _, area_mm2 in self.parts():
            total = total + area_mm2
        return total


def area_of(plan: Floorplan, technology: Technology) -> DieAreas:
    """Return the area of a die by part; UnknownNameError for a node, multiprocessor or pad that there is not.

    cores = n (control + arithmetic + matrix units + registers + L1), interconnect = n transistors / density,
    cache = bytes cell / part that is cells, pads as they are, controllers = transistors / density.

    >>> from .data import load_technology
    >>> known = load_technology()
    >>> round(float(area_of(floorplan("ga100", known), known).total_mm2))
    858
    """
    density = density_of(plan.node, technology)
    circuits = technology.section.circuits
    core_mm2 = core_areas(technology.multiprocessor(plan.multiprocessor), density, technology).total_mm2
    pads = _Pads.of(plan, technology)
    cores_mm2 = plan.num_sms * core_mm2
    interconnect_mm2 = plan.num_sms * (circuits.interconnect.si / density.logic)
    cache_mm2 = plan.l2_bytes * (density.cell_mm2 / circuits.l2_cells.si)
    memory_mm2, network_mm2 = pads.memory_transistors / density.logic, pads.network_transistors / density.logic
    built_mm2 = cores_mm2 + interconnect_mm2 + cache_mm2 + memory_mm2 + network_mm2
    built_mm2 = built_mm2 + pads.memory_mm2 + pads.network_mm2 + pads.d2d_mm2
    return DieAreas(
        cores_mm2=cores_mm2,
        interconnect_mm2=interconnect_mm2,
        cache_mm2=cache_mm2,
        memory_phy_mm2=pads.memory_mm2,
        memory_controller_mm2=memory_mm2,
        network_phy_mm2=pads.network_mm2,
        network_controller_mm2=network_mm2,
        d2d_mm2=pads.d2d_mm2,
        other_mm2=built_mm2 * circuits.other.si / (1 - circuits.other.si),
    )


def floorplan(name: str, technology: Technology) -> Floorplan:
    """Return what is on a die that exists; UnknownNameError names the nearest."""
    die = technology.die(name)
    return Floorplan(
        node=die.node,
        multiprocessor=die.multiprocessor,
        num_sms=die.num_sms.si,
        l2_bytes=die.l2.si,
        phys=tuple((kind, number.si) for kind, number in die.phys.items()),
    )


@dataclass(frozen=True, slots=True)
class Density:
    """What a node puts into an area: transistors of logic a mm2, and mm2 a byte of cells."""

    logic: float
    cell_mm2: float


def density_of(node: str, technology: Technology) -> Density:
    """Return the density of a node: as its data say, else of the nearest one with data, scaled by the nodes between.

    UnknownNameError for a node that there is not.
    """
    known = technology.section.densities
    if node in known:
        return Density(known[node].logic.si, known[node].cell.si)
    names = technology.node_names
    if node not in names:
        raise UnknownNameError.of("node", node, (*names, *known))
    given = [name for name in names if name in known]
    nearest = min(given, key=lambda name: abs(names.index(name) - names.index(node)))
    scale = technology.scale(nearest, node)
    return Density(known[nearest].logic.si / scale.logic, known[nearest].cell.si * scale.cache)


def core_areas(core: MultiprocessorSection, density: Density, technology: Technology) -> CoreAreas:
    """Return the area of one multiprocessor by part."""
    circuits, quarters = technology.section.circuits, core.quarters.si
    fp64 = circuits.fp64.si
    vector = core.int32.si * circuits.int32.si + fp64 * (core.fp64.si + core.fp32.si * (_FP32 / _FP64) ** 2)
    matrix = core.macs.si * fp64 * (_FP16 / _FP64) ** 2
    registers_mm2 = core.register_files.si * register_file_mm2(core) * _DENSITY_90NM / density.logic
    return CoreAreas(
        control_mm2=quarters * core.lanes.si * circuits.control.si / density.logic,
        vector_mm2=quarters * vector / density.logic,
        matrix_mm2=quarters * matrix / density.logic,
        registers_mm2=quarters * registers_mm2,
        l1_mm2=core.l1.si * density.cell_mm2 / circuits.l1_cells.si,
    )


def register_file_mm2(core: MultiprocessorSection) -> float:
    """Return the area of one register file at 90 nm, from registers D, bits W and ports P (EMPIRE, as in LLMCompass).

    A = 3.29e4 - 1090 D - 883 W - 5550 P + 53.5 D W + 0.015 D^2 + 0.0108 W^2 + 0.586 P^2 + 142 D P + 368 W P um2.
    """
    d, w, p = core.registers.si, core.register_bits.si, core.register_ports.si
    um2 = 3.29e4 - 1090 * d - 883 * w - 5550 * p
    um2 += 53.5 * d * w + 0.015 * d**2 + 0.0108 * w**2 + 0.586 * p**2 + 142 * d * p + 368 * w * p
    return um2 / 1e6


@dataclass(frozen=True, slots=True)
class _Pads:
    """What leaves a die, by whom it serves."""

    memory_mm2: Num = 0.0
    memory_transistors: Num = 0.0
    network_mm2: Num = 0.0
    network_transistors: Num = 0.0
    d2d_mm2: Num = 0.0

    @classmethod
    def of(cls, plan: Floorplan, technology: Technology) -> _Pads:
        found = cls()
        for name, number in plan.phys:
            found = found.plus(name, number, technology)
        return found

    def plus(self, name: str, number: Num, technology: Technology) -> _Pads:
        phys, d2d = technology.section.phys, technology.section.d2d
        if name in d2d:
            return replace(self, d2d_mm2=self.d2d_mm2 + number * technology.d2d(name).module_mm2)
        if name not in phys:
            raise UnknownNameError.of("kind of pads", name, (*phys, *d2d))
        pads_mm2, transistors = number * phys[name].pads.si, number * phys[name].controller.si
        if phys[name].serves == "memory":
            memory_mm2, all_of_it = self.memory_mm2 + pads_mm2, self.memory_transistors + transistors
            return replace(self, memory_mm2=memory_mm2, memory_transistors=all_of_it)
        network_mm2, all_of_it = self.network_mm2 + pads_mm2, self.network_transistors + transistors
        return replace(self, network_mm2=network_mm2, network_transistors=all_of_it)
