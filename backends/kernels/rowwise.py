"""Kernels that pass over rows: elementwise chains, norms, softmax, lookups, copies, the optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from .limits import ChipShare, Limit, Overhead, Scope
from .terms import Array, KernelTimes

if TYPE_CHECKING:
    from ..system import Chip

# Blocks of threads that share an SM when each takes a row.
BLOCKS_PER_SM = 4
# Results a clock of an SM's special function units: exp, sin, rsqrt. CUDA C++ programming guide, throughput table.
SPECIAL_PER_CLOCK = 16
# FLOPs a clock of the widest SM or compute unit that GPUs have; a core of another chip that does more is several.
FLOPS_PER_CLOCK = 256
# Part of `warm` below which all operands are found in the cache.
_HALF_WARM = 0.3


@dataclass(frozen=True, slots=True)
class RowwiseConstants:
    """Constants of one kind of kernel: `rmsnorm`, `add`, `vllm_silu_mul`.

    Attributes:
        overhead_s: O, launch and fixed work.
        memory: u, part of the memory's bandwidth.
        issue: c, bytes that an SM moves a clock, as far as its instructions let it.
        column: clocks that one column of a row takes in the block that has the row.
        pace: what issue and columns run at over what the clock of the data sheet gives.
        arithmetic: part of the vector and special function peaks.
        warm: part of the last cache, or times it, below which a call finds its operands there, 0 where never: those of
            a model on an accelerator come from memory, those of a small one on a CPU seldom do.
    """

    overhead_s: Overhead
    memory: ChipShare
    issue: Annotated[float, Limit(Scope.KERNEL, 0.01, 1000.0)]
    column: Annotated[float, Limit(Scope.KERNEL, 0.0, 100.0)]
    pace: Annotated[float, Limit(Scope.CHIP, 0.05, 4.0)]
    arithmetic: Annotated[float, Limit(Scope.KERNEL, 0.05, 1.0)]
    warm: Annotated[float, Limit(Scope.LIBRARY, 0.0, 4.0)] = 0.0


@dataclass(frozen=True, slots=True)
class RowwiseSizes:
    """Sizes of calls; all arrays broadcast.

    Attributes:
        rows: independent rows: all dims but the last.
        cols: length of a row.
        num_bytes: read and written, each tensor once.
        flops: on the vector units.
        specials: exponentials, sines, roots and divisions: what the special function units do.
    """

    rows: Array
    cols: Array
    num_bytes: Array
    flops: Array
    specials: Array


def rowwise_times(sizes: RowwiseSizes, chip: Chip, constants: RowwiseConstants) -> KernelTimes:
    """Price calls of one kind, in seconds.

    T = O + max(X / (u BW), X / (c SM f), cols t ceil(rows / (4 SM)) / f, F / (a P_v), S / (a 16 SM f)), where f is the
    clock times the pace: bytes, instructions that move them, the wait of a block for its row, arithmetic.

    >>> import numpy as np
    >>> from slipstick.backends.system import load_system
    >>> one = RowwiseConstants(2e-6, 0.9, 20.0, 0.2, 1.0, 0.5)
    >>> none = np.zeros(1)
    >>> call = RowwiseSizes(np.array([4096.0]), np.array([4096.0]), np.array([6 * 4096.0**2]), none, none)
    >>> times = rowwise_times(call, load_system("dgx-h100").chip, one)
    >>> times.bound(0), f"{float(times.time_s[0]):.3g}"  # 100 MB at 0.9 x 3.35 TB/s, and 2 us
    ('memory', '3.54e-05')
    """
    cores, clock = _cores(chip), chip.clock_hz * constants.pace
    waves = np.ceil(sizes.rows / (BLOCKS_PER_SM * cores))
    hidden = {
        "memory": _cold_bytes(sizes.num_bytes, chip, constants) / (constants.memory * chip.hbm_bytes_per_s),
        "issue": sizes.num_bytes / (constants.issue * cores * clock),
        "rows": waves * sizes.cols * constants.column / chip.clock_hz,
        "vector": sizes.flops / (constants.arithmetic * chip.vector_flop_per_s),
        "special": sizes.specials / (constants.arithmetic * SPECIAL_PER_CLOCK * cores * chip.clock_hz),
    }
    slowest = np.maximum.reduce(np.broadcast_arrays(*hidden.values()))
    return KernelTimes(constants.overhead_s + slowest, {"overhead": np.array(constants.overhead_s), **hidden})


def _cold_bytes(num_bytes: Array, chip: Chip, constants: RowwiseConstants) -> Array:
    """Bytes that come from memory: all of a call beyond the cache, none of one far below, in between a part."""
    if constants.warm == 0.0:
        return num_bytes
    part = num_bytes / (constants.warm * chip.l2_bytes)
    return np.asarray(num_bytes * np.clip((part - _HALF_WARM) / (1.0 - _HALF_WARM), 0.0, 1.0))


def _cores(chip: Chip) -> float:
    return max(float(chip.num_sms), chip.vector_flop_per_s / (FLOPS_PER_CLOCK * chip.clock_hz))
