"""The data files of the technology engine: nodes, units of compute, memories, links, interfaces between dies, areas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

from ...machine.files.kinds import Least
from ...machine.files.number import Number
from ...machine.files.section import Section
from ..d2d import ORGANIC_WIRES_PER_MM, D2dKind
from ..voltage import VoltageLaw
from .area_schema import CircuitsSection, DensitySection, DieSection, MultiprocessorSection, PhySection
from .schema_numbers import (
    Area,
    Bandwidth,
    Capacity,
    Count,
    Density,
    Energy,
    Flux,
    Footprint,
    Frequency,
    Gain,
    Latency,
    Leakage,
    Length,
    LinkRate,
    PackageRatio,
    Power,
    Rate,
    Ratio,
    Voltage,
)

# Dtypes whose rate a unit may give beside that of fp16.
Dtype: TypeAlias = Literal["bf16", "tf32", "fp64", "fp8", "fp6", "fp4", "int8", "int4"]


class VoltageSection(Section):
    """Voltages of a circuit."""

    nominal: Voltage
    threshold: Voltage
    margin: Voltage
    maximum: Voltage

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield that voltages do not rise."""
        if not self.threshold.si + self.margin.si <= self.nominal.si <= self.maximum.si:
            yield "voltages must rise: threshold with margin, nominal, maximum"

    @property
    def law(self) -> VoltageLaw:
        """The voltages as plain numbers."""
        return VoltageLaw(self.nominal.si, self.threshold.si, self.margin.si, self.maximum.si)


class NodeGains(Section):
    """A technology node: gains over the node before it in the file, and the year of its first products."""

    year: Count | None = None
    logic: Gain
    cache: Gain
    analog: Gain
    power: Gain


class CacheSection(Section):
    """The last memory level on the die, in banks."""

    bank: Capacity
    area: Area
    energy: Energy
    leakage: Leakage


class SharesSection(Section):
    """Parts of a budget; what is left is for all that the engine does not build."""

    core: Ratio
    cache: Ratio
    memory: Ratio
    network: Ratio

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield that the parts are more than the whole."""
        return _at_most_one(self.core, self.cache, self.memory, self.network)

    @property
    def total(self) -> float:
        """All of them."""
        return self.core.si + self.cache.si + self.memory.si + self.network.si


class EdgeSection(Section):
    """Parts of the perimeter of the dies."""

    memory: Ratio
    network: Ratio

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield that the parts are more than the whole."""
        return _at_most_one(self.memory, self.network)

    @property
    def total(self) -> float:
        """Both of them."""
        return self.memory.si + self.network.si


def _at_most_one(*shares: Number) -> Iterator[str]:
    total = sum(share.si for share in shares)
    # The parts of a whole may add up to a hair more.
    if total > 1.0 + 1e-9:
        yield f"the shares add up to {total:g}, more than there is"


class UnitSection(Section):
    """A unit of compute, what comes with it, and how a chip made of it shares its budgets."""

    node: str
    area: Area
    power: Power
    clock: Frequency
    flop_per_clock: Count
    per_sm: Count
    vector_flop_per_clock: Count
    rates: dict[Dtype, Rate]
    voltage: VoltageSection
    cache: CacheSection
    package: PackageRatio
    area_shares: SharesSection
    power_shares: SharesSection
    edge_shares: EdgeSection


class MemorySection(Section):
    """What a design needs of a stack of memory beside the die, its controller on the die, and its wires.

    Attributes:
        year: first volume products.
        beside: room of a stack beside the dies, where a budget counts it otherwise than its footprint.
        latency: of a byte in a closed row; no step depends on it.
        energy: of an access, as charged.
        design_energy: what a design sets aside for a bit at full rate, where that is more.
    """

    year: Count | None = None
    capacity: Capacity
    links: Count
    rate: LinkRate
    density: Density
    controller: Area
    footprint: Footprint
    beside: Area | None = None
    latency: Latency | None = None
    energy: Energy
    design_energy: Energy | None = None
    leakage: Leakage
    voltage: VoltageSection

    @property
    def beside_mm2(self) -> float:
        """Room of a stack beside the dies."""
        return (self.beside or self.footprint).si

    @property
    def design_j_per_byte(self) -> float:
        """Energy that a design sets aside for a byte at full rate."""
        return (self.design_energy or self.energy).si

    @property
    def bytes_per_s(self) -> float:
        """What one stack carries at its rated speed."""
        return self.links.si * self.rate.si

    @property
    def fine_wires(self) -> bool:
        """Whether it has more wires along an edge than an organic substrate can draw."""
        return self.density.si > ORGANIC_WIRES_PER_MM


class D2dSection(Section):
    """An interface between dies: modules side by side on an edge, or a share of the die where that is all one knows."""

    bandwidth: Bandwidth | None = None
    wires: Count | None = None
    area: Area | None = None
    shoreline: Length | None = None
    share: Ratio | None = None
    energy: Energy
    latency: Latency
    reach: Length | None = None

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield what is missing of a module, or too much of a share."""
        module = (self.bandwidth, self.area, self.shoreline)
        if self.share is None and None in module:
            yield "an interface needs bandwidth, area and shoreline of a module, or a share of the die"
        if self.share is not None and any(module):
            yield "an interface with a share of the die has no modules"

    def kind(self, name: str) -> D2dKind:
        """The interface as plain numbers."""
        return D2dKind(
            name=name,
            module_bytes_per_s=_or(self.bandwidth, math.inf),
            module_mm2=_or(self.area, 0.0),
            module_mm=_or(self.shoreline, 0.0),
            module_wires=_or(self.wires, 0.0),
            area_share=_or(self.share, 0.0),
            energy_j_per_byte=self.energy.si,
            latency_s=self.latency.si,
            reach_mm=_or(self.reach, math.inf),
        )


def _or(number: Number | None, otherwise: float) -> float:
    return otherwise if number is None else number.si


class CoolingSection(Section):
    """A way to cool packages."""

    flux: Flux


class LinkSection(Section):
    """A lane to other chips: one wire pair each way."""

    rate: LinkRate
    area: Area
    density: Density
    energy: Energy
    voltage: VoltageSection


class TechnologySection(Section):
    """All data of the engine by name; nodes from the oldest to the newest."""

    nodes: Annotated[dict[str, NodeGains], Least()]
    units: Annotated[dict[str, UnitSection], Least()]
    memories: Annotated[dict[str, MemorySection], Least()]
    links: Annotated[dict[str, LinkSection], Least()]
    d2d: Annotated[dict[str, D2dSection], Least()]
    cooling: Annotated[dict[str, CoolingSection], Least()]
    densities: Annotated[dict[str, DensitySection], Least()]
    circuits: CircuitsSection
    phys: dict[str, PhySection]
    multiprocessors: dict[str, MultiprocessorSection]
    dies: dict[str, DieSection]
