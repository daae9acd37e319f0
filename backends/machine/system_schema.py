"""What a system file may hold, section by section, and what each section is to the models."""

from __future__ import annotations

from pydantic import Field, field_validator

from ...ir.errors import UsageError
from ..network.topology.section import LevelSection, level_faults
from .chip import Chip, HostLink, HostMemory, Peaks, SystolicArray
from .files.system_numbers import (
    Bandwidth,
    Capacity,
    Count,
    FlopRate,
    Frequency,
    Latency,
    Number,
    Power,
    Ratio,
    Section,
)
from .machine_schema import RackSection, ServerSection
from .package_schema import PackageSection
from .software.stack_schema import StackSection


class MatmulSection(Section):
    """Dense matmul peaks; a dtype that no unit takes is left out."""

    bf16: FlopRate | None = None
    fp16: FlopRate | None = None
    tf32: FlopRate | None = None
    fp32: FlopRate
    fp64: FlopRate | None = None
    fp8: FlopRate | None = None
    fp6: FlopRate | None = None
    fp4: FlopRate | None = None
    int8: FlopRate | None = None
    int4: FlopRate | None = None


class VectorSection(Section):
    """Peaks outside the matmul units; of exponentials, roots and the like where they are not those of GPUs."""

    fp32: FlopRate
    special: FlopRate | None = None


class ArraySection(Section):
    """The shape of matrix units that are systolic arrays."""

    inner: Count
    columns: Count


class HbmSection(Section):
    """The memory beside the chip."""

    capacity: Capacity
    bandwidth: Bandwidth


class CacheSection(Section):
    """The last level of memory on the chip that all of it shares."""

    capacity: Capacity
    bandwidth: Bandwidth | None = None
    partitions: Count | None = None


class MemorySection(Section):
    """The memory levels of a chip."""

    hbm: HbmSection
    l2: CacheSection


class HostLinkSection(Section):
    """The link of a chip to its host, one direction."""

    bandwidth: Bandwidth
    latency: Latency
    efficiency: Ratio


class HostMemorySection(Section):
    """The memory of a host, all sockets together."""

    capacity: Capacity
    bandwidth: Bandwidth
    efficiency: Ratio


class ChipSection(Section):
    """One accelerator."""

    name: str
    design: str = ""
    measured_as: str = ""
    num_sms: Count
    clock: Frequency
    power: Power
    power_limit: Power | None = None
    matmul: MatmulSection
    vector: VectorSection
    array: ArraySection | None = None
    memory: MemorySection
    host_link: HostLinkSection | None = None
    package: PackageSection | None = None


class NodeSection(Section):
    """What shares a board and a host."""

    num_chips: Count
    host_memory: HostMemorySection | None = None


class NetworkSection(Section):
    """A network of its own, which machines refer to by name: levels from the inside out."""

    name: str
    levels: list[LevelSection] = Field(min_length=1)

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: list[LevelSection]) -> list[LevelSection]:
        return nested(levels)


class UnpricedSection(Section):
    """The whole file but for prices, with the chip and the software that it refers to put in place."""

    name: str
    chip: ChipSection
    node: NodeSection
    network: list[LevelSection] = Field(min_length=1)
    server: ServerSection | None = None
    rack: RackSection | None = None
    stack: StackSection

    @field_validator("network")
    @classmethod
    def _check_levels(cls, network: list[LevelSection]) -> list[LevelSection]:
        return nested(network)


class SystemSection(UnpricedSection):
    """A file that gives no prices; one that does is a `PricedSection`, whose schema takes as long to make as this."""

    prices: None = None


def as_chip(chip: ChipSection) -> Chip:
    """Return a checked chip as plain numbers in base units."""
    return Chip(
        name=chip.name,
        peak_flop_per_s=_peaks(chip.matmul),
        vector_flop_per_s=chip.vector.fp32.si,
        num_sms=int(chip.num_sms.si),
        clock_hz=chip.clock.si,
        hbm_bytes=chip.memory.hbm.capacity.si,
        hbm_bytes_per_s=chip.memory.hbm.bandwidth.si,
        l2_bytes=chip.memory.l2.capacity.si,
        power_w=chip.power.si,
        host_link=_host_link(chip.host_link),
        l2_bytes_per_s=_optional(chip.memory.l2.bandwidth),
        l2_partitions=int(_optional(chip.memory.l2.partitions) or 1),
        power_limit_w=_optional(chip.power_limit),
        special_op_per_s=_optional(chip.vector.special),
        design=chip.design,
        array=None if chip.array is None else SystolicArray(int(chip.array.inner.si), int(chip.array.columns.si)),
    )


def _host_link(link: HostLinkSection | None) -> HostLink | None:
    return None if link is None else HostLink(link.bandwidth.si, link.efficiency.si, link.latency.si)


def as_host_memory(memory: HostMemorySection | None) -> HostMemory | None:
    """Return a checked host's memory as plain numbers in base units; None where the file has none."""
    return None if memory is None else HostMemory(memory.capacity.si, memory.bandwidth.si, memory.efficiency.si)


def _peaks(matmul: MatmulSection) -> Peaks:
    return Peaks(
        bf16=_optional(matmul.bf16),
        fp16=_optional(matmul.fp16),
        tf32=_optional(matmul.tf32),
        fp32=matmul.fp32.si,
        fp8=_optional(matmul.fp8),
        int8=_optional(matmul.int8),
        fp64=_optional(matmul.fp64),
        fp6=_optional(matmul.fp6),
        fp4=_optional(matmul.fp4),
        int4=_optional(matmul.int4),
    )


def _optional(number: Number | None) -> float | None:
    return None if number is None else number.si


def nested(levels: list[LevelSection]) -> list[LevelSection]:
    """Return levels whose names differ and whose sizes nest; UsageError says what does not."""
    faults = list(level_faults(levels))
    if faults:
        raise UsageError("; ".join(faults))
    return levels
