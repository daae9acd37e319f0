"""A chip as the models see it: peaks, memory, cache, and the link to its host, in base units."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import Annotated, ClassVar

import numpy as np

from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .files.kinds import (
    BANDWIDTH,
    CAPACITY,
    COUNT,
    ENERGY_RATIO,
    FLOP_ENERGY,
    FLOP_RATE,
    FREQUENCY,
    LATENCY,
    POWER,
    RATIO,
    WIRE_ENERGY,
    Key,
)

_MAKERS = (
    ("NVIDIA", re.compile(r"(A|B|GB|GH|H|L|V)[0-9]|RTX")),
    ("AMD", re.compile(r"MI[0-9]")),
    ("Google", re.compile(r"TPU")),
    ("Intel", re.compile(r"Gaudi|Xeon")),
    ("AWS", re.compile(r"Trainium")),
)


@dataclass(frozen=True, slots=True)
class Peaks:
    """Dense matmul peaks in FLOP/s by operand dtype; None where the chip has no such unit."""

    ORDER: ClassVar = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp6", "fp4", "int8", "int4")

    bf16: Annotated[Num | None, Key(form=True), FLOP_RATE]
    fp16: Annotated[Num | None, Key(form=True), FLOP_RATE]
    tf32: Annotated[Num | None, Key(form=True), FLOP_RATE]
    fp32: Annotated[Num, Key(form=True), FLOP_RATE]
    fp8: Annotated[Num | None, Key(form=True), FLOP_RATE]
    int8: Annotated[Num | None, Key(form=True), FLOP_RATE]
    fp64: Annotated[Num | None, Key(form=True), FLOP_RATE] = None
    fp6: Annotated[Num | None, Key(form=True), FLOP_RATE] = None
    fp4: Annotated[Num | None, Key(form=True), FLOP_RATE] = None
    int4: Annotated[Num | None, Key(form=True), FLOP_RATE] = None

    def by_dtype(self) -> dict[str, Num]:
        """Return what there is by dtype, in the order of the fields."""
        found = ((dtype, getattr(self, dtype)) for dtype in self.__slots__)
        return {dtype: peak for dtype, peak in found if peak is not None}

    def times(self, factor: Num) -> Peaks:
        """Return all peaks scaled alike."""
        return replace(self, **{dtype: peak * factor for dtype, peak in self.by_dtype().items()})


@dataclass(frozen=True, slots=True)
class SystolicArray:
    """The shape of matrix units that are systolic arrays: what a product must hold to keep one busy.

    Attributes:
        inner: elements of the dimension that is summed over, which a unit takes at once.
        columns: columns of the result that it makes at once.
    """

    inner: Annotated[int, COUNT]
    columns: Annotated[int, COUNT]


@dataclass(frozen=True, slots=True)
class HostLink:
    """The link of one chip to its host: one direction, the part that large copies reach, the time of an empty one."""

    ORDER: ClassVar = ("bandwidth", "latency", "efficiency")

    bytes_per_s: Annotated[Num, Key("bandwidth", moves=True), BANDWIDTH]
    efficiency: Annotated[Num, RATIO]
    latency_s: Annotated[Num, Key("latency", moves=True), LATENCY]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The memory of the host of a node, which its chips share evenly."""

    num_bytes: Annotated[float, Key("capacity", column=False), CAPACITY]
    bytes_per_s: Annotated[Num, Key("bandwidth", moves=True), BANDWIDTH]
    efficiency: Annotated[Num, RATIO]


@dataclass(frozen=True, slots=True)
class ChipEnergy:
    """Energy of the levels of a chip; what is None follows from the node of its dies: `cost/ownership/levels.py`.

    Attributes:
        logic: energy of its logic over that of the measured chip: power of the node x V^2.
        wires: the same of wires across a die: length x V^2.
        matmul_j_per_flop: of matrix units in 16 bits, where these were measured.
        narrow: power of matrix units on narrower operands over that on 16 bits, at the same clock.
        vector_j_per_flop: of vector units.
        cache_j_per_byte: of a byte of memory on the chip: caches, crossbar, registers and instructions.
        memory_j_per_byte: of its memory; None for that of its kind.
    """

    ORDER: ClassVar = ("logic", "wires", "matmul", "narrow", "vector", "cache", "memory")

    logic: Annotated[Num | None, ENERGY_RATIO] = None
    wires: Annotated[Num | None, ENERGY_RATIO] = None
    matmul_j_per_flop: Annotated[Num | None, Key("matmul"), FLOP_ENERGY] = None
    narrow: Annotated[Num | None, ENERGY_RATIO] = None
    vector_j_per_flop: Annotated[Num | None, Key("vector"), FLOP_ENERGY] = None
    cache_j_per_byte: Annotated[Num | None, Key("cache"), WIRE_ENERGY] = None
    memory_j_per_byte: Annotated[Num | None, Key("memory"), WIRE_ENERGY] = None


# Results a clock of an SM's special function units: exp, sin, rsqrt. CUDA C++ programming guide, throughput table, the
# same from compute capability 7.0 to 10.0; compute units of AMD have a quarter of 64 lanes.
SPECIALS_PER_CLOCK = 16.0
# FLOPs a clock of the widest SM or compute unit that GPUs have: of its vector units, and of its matrix units in 16 bits
# (B200). A core of another chip that does more takes less than a clock for what one of theirs does in one.
FLOPS_PER_CLOCK, MATRIX_FLOPS_PER_CLOCK = 256.0, 8192.0
# Bytes that a cache hands an SM of GPUs in a clock: NVIDIA A100 white paper, 64 of each slice of the L2. Products reach
# 55 of them, as fitted (`draw`).
INGEST_BYTES_PER_CLOCK = 64.0


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator.

    Attributes:
        name: as its maker calls it.
        peak_flop_per_s: of its matrix units.
        vector_flop_per_s: of everything else.
        clock_hz: of its units: what is counted in clocks follows it; peaks are numbers of their own and stay.
        hbm_bytes: memory beside the chip.
        hbm_bytes_per_s: its bandwidth.
        power_w: what it may draw.
        num_sms: units that take tiles of work one at a time; 1 of a chip that has none and works as one (dataflow,
            arrays, compute in memory), on which no threads wait for one another.
        l2_bytes: last level of cache, all partitions together; 0 where there is none.
        ingest_bytes_per_s: what the units of all of it take in from memory and cache at most; None for 64 bytes a
            clock of each SM, or what arrays and dataflow need.
        fixed_s: time of a kernel besides its work: launch, filling and draining of units; None for what calibrations
            measured of each kind of kernel, 0 of a machine that runs a whole step as one.
        host_link: link to its host, if any.
        l2_bytes_per_s: bandwidth of the cache where the maker gives it.
        l2_partitions: parts of the cache that keep copies of one another's data for the units beside them.
        power_limit_w: what it is allowed to draw, where that is less: see `backends/machine/power.py`.
        special_op_per_s: exponentials, roots and the like in a second, where its maker's differ from those of GPUs.
        design: of its compute dies, `hopper`; chips of one design have the same units, and kernels run on them alike.
        array: the shape of its matrix units where these are systolic arrays, fed by copies that software starts.
        measured_as: a chip of the catalogue of the same silicon, whose measured constants it has.
        energy: of its operations and bytes, where it has some of its own.
    """

    ORDER: ClassVar = (
        "name",
        "design",
        "measured_as",
        "num_sms",
        "clock",
        "fixed_time",
        "power",
        "power_limit",
        "matmul",
        "vector",
        "array",
    )

    name: str
    peak_flop_per_s: Annotated[Peaks, Key("matmul")]
    vector_flop_per_s: Annotated[Num, Key("vector.fp32", "vector peak", moves=True), FLOP_RATE]
    clock_hz: Annotated[Num, Key("clock", "clock", moves=True), FREQUENCY]
    hbm_bytes: Annotated[Num, Key("memory.hbm.capacity"), CAPACITY]
    hbm_bytes_per_s: Annotated[Num, Key("memory.hbm.bandwidth", "HBM bandwidth", moves=True), BANDWIDTH]
    power_w: Annotated[Num, Key("power"), POWER]
    num_sms: Annotated[Num, COUNT] = 1
    l2_bytes: Annotated[Num, Key("memory.l2.capacity"), CAPACITY] = 0.0
    ingest_bytes_per_s: Annotated[Num | None, Key("memory.ingest.bandwidth", "on-chip ingest"), BANDWIDTH] = None
    fixed_s: Annotated[Num | None, Key("fixed_time", column=False), LATENCY] = None
    host_link: HostLink | None = None
    l2_bytes_per_s: Annotated[Num | None, Key("memory.l2.bandwidth"), BANDWIDTH] = None
    l2_partitions: Annotated[Num, Key("memory.l2.partitions"), COUNT] = 1
    power_limit_w: Annotated[Num | None, Key("power_limit"), POWER] = None
    special_op_per_s: Annotated[Num | None, Key("vector.special"), FLOP_RATE] = None
    design: str = field(default="", repr=False)
    array: SystolicArray | None = None
    measured_as: str = field(default="", repr=False)
    energy: ChipEnergy | None = None

    @property
    def has_threads(self) -> bool:
        """Whether blocks of threads on SMs move the data: elsewhere copies do, or the dataflow itself."""
        # A processor of one core has a cache; what leaves both out has neither.
        return self.array is None and bool(np.all((np.asarray(self.num_sms) > 1) | (np.asarray(self.l2_bytes) > 0)))

    @property
    def ingest_scale(self) -> Num:
        """On-chip ingest over that of as many SMs of GPUs, on which the constants of kernels were measured."""
        if self.ingest_bytes_per_s is None:
            return 1.0
        return self.ingest_bytes_per_s / (INGEST_BYTES_PER_CLOCK * self.num_sms * self.matrix_hz)

    @property
    def cores(self) -> Num:
        """SMs as wide as those of GPUs: a core with wider vector units counts as several."""
        return np.maximum(self.num_sms, self.vector_flop_per_s / (FLOPS_PER_CLOCK * self.clock_hz))

    @property
    def matrix_hz(self) -> Num:
        """Clocks of the widest SM of a GPU that one core does the matrix work of in a second."""
        peaks = self.peak_flop_per_s.by_dtype()
        widest = np.maximum(np.maximum(peaks.get("bf16", 0.0), peaks.get("fp16", 0.0)), peaks["fp32"])
        return np.maximum(self.clock_hz, widest / (MATRIX_FLOPS_PER_CLOCK * self.num_sms))

    @property
    def specials_per_s(self) -> Num:
        """Exponentials, roots and the like that it computes in a second."""
        if self.special_op_per_s is not None:
            return self.special_op_per_s
        return SPECIALS_PER_CLOCK * self.num_sms * self.matrix_hz

    def matmul_flop_per_s(self, dtype: str) -> Num:
        """Return the dense matmul peak for operands of a dtype; UnknownNameError where the chip has none."""
        peaks = self.peak_flop_per_s.by_dtype()
        if dtype not in peaks:
            raise UnknownNameError.of(f"matmul dtype of {self.name}", dtype, peaks)
        return peaks[dtype]


def maker_of(chip: str) -> str:
    """Name who makes a chip by how its name begins; empty where that is not known.

    >>> maker_of("MI300X"), maker_of("GB200-186GB"), maker_of("mine")
    ('AMD', 'NVIDIA', '')
    """
    return next((maker for maker, begins in _MAKERS if begins.match(chip)), "")
