"""A chip as the models see it: peaks, memory, cache, and the link to its host, in base units."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ...ir.errors import UnknownNameError
from ...ir.sizes.expr import Num


@dataclass(frozen=True, slots=True)
class Peaks:
    """Dense matmul peaks in FLOP/s by operand dtype; None where the chip has no such unit."""

    bf16: Num | None
    fp16: Num | None
    tf32: Num | None
    fp32: Num
    fp8: Num | None
    int8: Num | None
    fp64: Num | None = None
    fp6: Num | None = None
    fp4: Num | None = None
    int4: Num | None = None

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

    inner: int
    columns: int


@dataclass(frozen=True, slots=True)
class HostLink:
    """The link of one chip to its host: one direction, the part that large copies reach, the time of an empty one."""

    bytes_per_s: Num
    efficiency: Num
    latency_s: Num


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The memory of the host of a node, which its chips share evenly."""

    num_bytes: float
    bytes_per_s: Num
    efficiency: Num


# Results a clock of an SM's special function units: exp, sin, rsqrt. CUDA C++ programming guide, throughput table, the
# same from compute capability 7.0 to 10.0; compute units of AMD have a quarter of 64 lanes.
SPECIALS_PER_CLOCK = 16.0
# FLOPs a clock of the widest SM or compute unit that GPUs have: of its vector units, and of its matrix units in 16 bits
# (B200). A core of another chip that does more takes less than a clock for what one of theirs does in one.
FLOPS_PER_CLOCK, MATRIX_FLOPS_PER_CLOCK = 256.0, 8192.0


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator.

    Attributes:
        name: as its maker calls it.
        peak_flop_per_s: of its matrix units.
        vector_flop_per_s: of everything else.
        num_sms: units that take tiles of work one at a time.
        clock_hz: of these units.
        hbm_bytes: memory beside the chip.
        hbm_bytes_per_s: its bandwidth.
        l2_bytes: last level of cache, all partitions together.
        power_w: what it may draw.
        host_link: link to its host, if any.
        l2_bytes_per_s: bandwidth of the cache where the maker gives it.
        l2_partitions: parts of the cache that keep copies of one another's data for the units beside them.
        power_limit_w: what it is allowed to draw, where that is less: see `backends/machine/power.py`.
        special_op_per_s: exponentials, roots and the like in a second, where its maker's differ from those of GPUs.
        design: of its compute dies, `hopper`; chips of one design have the same units, and kernels run on them alike.
        array: the shape of its matrix units where these are systolic arrays, fed by copies that software starts.
    """

    name: str
    peak_flop_per_s: Peaks
    vector_flop_per_s: Num
    num_sms: Num
    clock_hz: Num
    hbm_bytes: Num
    hbm_bytes_per_s: Num
    l2_bytes: Num
    power_w: Num
    host_link: HostLink | None = None
    l2_bytes_per_s: Num | None = None
    l2_partitions: Num = 1
    power_limit_w: Num | None = None
    special_op_per_s: Num | None = None
    design: str = field(default="", repr=False)
    array: SystolicArray | None = None

    @property
    def has_threads(self) -> bool:
        """Whether blocks of threads move the data: on chips of systolic arrays copies do, which software starts."""
        return self.array is None

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
