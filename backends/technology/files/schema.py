"""The data files of the technology engine: nodes, units of compute, memories, links, interfaces between dies, areas."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, TypeVar

from pydantic import Field, model_validator

from ....ir.errors import UsageError
from ...machine.files.system_numbers import (
    Bandwidth,
    Capacity,
    Count,
    Frequency,
    Latency,
    Number,
    Power,
    Ratio,
    Section,
)
from ..d2d import D2dKind
from ..voltage import VoltageLaw
from .area_schema import CircuitsSection, DensitySection, DieSection, MultiprocessorSection, PhySection
from .schema_numbers import Area, Density, Energy, Gain, Leakage, Length, LinkRate, PackageRatio, Rate, Voltage

# Dtypes whose rate a unit may give beside that of fp16.
Dtype: TypeAlias = Literal["bf16", "tf32", "fp64", "fp8", "fp6", "fp4", "int8", "int4"]
S = TypeVar("S", bound=Section)


class VoltageSection(Section):
    """Voltages of a circuit."""

    nominal: Voltage
    threshold: Voltage
    margin: Voltage
    maximum: Voltage

    @model_validator(mode="after")
    def _check_order(self) -> VoltageSection:
        if not self.threshold.si + self.margin.si <= self.nominal.si <= self.maximum.si:
            raise UsageError("voltages must rise: threshold with margin, nominal, maximum")
        return self

    @property
    def law(self) -> VoltageLaw:
        """The voltages as plain numbers."""
        return VoltageLaw(self.nominal.si, self.threshold.si, self.margin.si, self.maximum.si)


class NodeSection(Section):
    """A technology node: gains over the node before it in the file."""

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

    @model_validator(mode="after")
    def _check_sum(self) -> SharesSection:
        return _at_most_one(self, self.core.si + self.cache.si + self.memory.si + self.network.si)


class EdgeSection(Section):
    """Parts of the perimeter of the dies."""

    memory: Ratio
    network: Ratio

    @model_validator(mode="after")
    def _check_sum(self) -> EdgeSection:
        return _at_most_one(self, self.memory.si + self.network.si)


def _at_most_one(section: S, total: float) -> S:
    if total > 1.0:
        raise UsageError(f"the shares add up to {total:g}, more than there is")
    return section


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
    """A stack of memory beside the die, its controller on the die, and its wires."""

    capacity: Capacity
    links: Count
    rate: LinkRate
    footprint: Area
    controller: Area
    density: Density
    energy: Energy
    leakage: Leakage
    voltage: VoltageSection


class D2dSection(Section):
    """An interface between dies: modules side by side on an edge, or a share of the die where that is all one knows."""

    bandwidth: Bandwidth | None = None
    area: Area | None = None
    shoreline: Length | None = None
    share: Ratio | None = None
    energy: Energy
    latency: Latency
    reach: Length | None = None

    @model_validator(mode="after")
    def _check_module(self) -> D2dSection:
        module = (self.bandwidth, self.area, self.shoreline)
        if self.share is None and None in module:
            raise UsageError("an interface needs bandwidth, area and shoreline of a module, or a share of the die")
        if self.share is not None and any(module):
            raise UsageError("an interface with a share of the die has no modules")
        return self

    def kind(self, name: str) -> D2dKind:
        """The interface as plain numbers."""
        return D2dKind(
            name=name,
            module_bytes_per_s=_or(self.bandwidth, math.inf),
            module_mm2=_or(self.area, 0.0),
            module_mm=_or(self.shoreline, 0.0),
            area_share=_or(self.share, 0.0),
            energy_j_per_byte=self.energy.si,
            latency_s=self.latency.si,
            reach_mm=_or(self.reach, math.inf),
        )


def _or(number: Number | None, otherwise: float) -> float:
    return otherwise if number is None else number.si


class LinkSection(Section):
    """A lane to other chips: one wire pair each way."""

    rate: LinkRate
    area: Area
    density: Density
    energy: Energy
    voltage: VoltageSection


class TechnologySection(Section):
    """All data of the engine by name; nodes from the oldest to the newest."""

    nodes: dict[str, NodeSection] = Field(min_length=1)
    units: dict[str, UnitSection] = Field(min_length=1)
    memories: dict[str, MemorySection] = Field(min_length=1)
    links: dict[str, LinkSection] = Field(min_length=1)
    d2d: dict[str, D2dSection] = Field(min_length=1)
    densities: dict[str, DensitySection] = Field(min_length=1)
    circuits: CircuitsSection
    phys: dict[str, PhySection]
    multiprocessors: dict[str, MultiprocessorSection]
    dies: dict[str, DieSection]
