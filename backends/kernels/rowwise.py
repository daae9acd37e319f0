"""Kernels that pass over rows: elementwise chains, norms, softmax, lookups, copies, the optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ...ir.records import dataclass
from .limits import ChipShare, ConstantRange, Overhead, Scope
from .terms import Array, KernelTimes, as_rows

if TYPE_CHECKING:
    from ..machine.chip import Chip

# Blocks of threads that share an SM when each takes a row.
BLOCKS_PER_SM = 4
# Part of `warm` below which all operands are found in the cache.
_HALF_WARM = 0.3
_NOTHING = 1e-9  # bytes of a cache in which nothing is found


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
    issue: Annotated[float, ConstantRange(Scope.KERNEL, 0.01, 1000.0)]
    column: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 100.0)]
    pace: Annotated[float, ConstantRange(Scope.CHIP, 0.05, 4.0)]
    arithmetic: Annotated[float, ConstantRange(Scope.KERNEL, 0.05, 1.0)]
    warm: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 4.0)] = 0.0


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

    T = O + max(X / (u BW), X / (c SM f), cols t ceil(rows / (4 SM)) / f, F / (a P_v), S / (a E)), where f is the clock
    times the pace, E the special functions a second: bytes, instructions that move them, the wait of a block for its
    row, arithmetic.

    >>> import numpy as np
    >>> from slipstick.backends.machine.load import load_system
    >>> one = RowwiseConstants(2e-6, 0.9, 20.0, 0.2, 1.0, 0.5)
    >>> none = np.zeros(1)
    >>> call = RowwiseSizes(np.array([4096.0]), np.array([4096.0]), np.array([6 * 4096.0**2]), none, none)
    >>> times = rowwise_times(call, load_system("dgx-h100").chip, one)
    >>> times.bound(0), f"{float(times.time_s[0]):.3g}"  # 100 MB at 0.9 x 3.35 TB/s, and 2 us
    ('memory', '3.54e-05')
    """
    return RowwiseMachine.of(chip, constants).times(sizes)


@dataclass(frozen=True, slots=True)
class RowwiseMachine:
    """A chip under the constants of a kind: what a call takes of each, or columns of that for calls of several kinds.

    Attributes:
        overhead_s: launch and fixed work.
        memory_bytes_per_s: through memory.
        issue_bytes_per_s: as instructions let all SMs move them.
        blocks: rows that run at the same time.
        column: clocks of a column.
        clock_hz: at which these run.
        vector_flop_per_s: of the vector units.
        specials_per_s: of the special function units.
        warm_bytes: bytes of a call below which some of its operands are in the cache.
    """

    overhead_s: Array
    memory_bytes_per_s: Array
    issue_bytes_per_s: Array
    blocks: Array
    column: Array
    clock_hz: Array
    vector_flop_per_s: Array
    specials_per_s: Array
    warm_bytes: Array

    @classmethod
    def of(cls, chip: Chip, constants: RowwiseConstants) -> RowwiseMachine:
        """Put a chip and the constants of one kind together."""
        k, cores = constants, chip.cores
        # Copies that software starts keep memory busy whatever the instructions, and no block waits for its row.
        issue, column = (k.issue * chip.ingest_scale, k.column) if chip.has_threads else (np.inf, 0.0)
        numbers = (
            k.overhead_s,
            k.memory * chip.hbm_bytes_per_s,
            issue * cores * (chip.clock_hz * k.pace),
            BLOCKS_PER_SM * cores,
            column,
            chip.clock_hz,
            k.arithmetic * chip.vector_flop_per_s,
            k.arithmetic * chip.specials_per_s,
            k.warm * chip.l2_bytes,
        )
        return cls(*(np.array(x, dtype=np.float64) for x in numbers))

    @classmethod
    def stacked(cls, machines: Sequence[RowwiseMachine], rows: Sequence[int]) -> RowwiseMachine:
        """Return columns, of each row the machine at its place; over all chips where these are a table."""
        return cls(*(as_rows([getattr(m, f.name) for m in machines])[rows] for f in fields(cls)))

    def times(self, sizes: RowwiseSizes) -> KernelTimes:
        """Return the time of calls in seconds, as `rowwise_times` says."""
        memory = self._cold_bytes(sizes.num_bytes) / self.memory_bytes_per_s
        issue = sizes.num_bytes / self.issue_bytes_per_s
        rows = np.ceil(sizes.rows / self.blocks) * sizes.cols * self.column / self.clock_hz
        vector = sizes.flops / self.vector_flop_per_s
        special = sizes.specials / self.specials_per_s
        slowest = np.maximum(np.maximum(np.maximum(memory, issue), np.maximum(rows, vector)), special)
        hidden = {"memory": memory, "issue": issue, "rows": rows, "vector": vector, "special": special}
        return KernelTimes(self.overhead_s + slowest, {"overhead": self.overhead_s, **hidden})

    def _cold_bytes(self, num_bytes: Array) -> Array:
        """Bytes that come from memory: all of a call beyond the cache, none of one far below, in between a part."""
        if not self.warm_bytes.any():
            return num_bytes
        part = num_bytes / np.maximum(self.warm_bytes, _NOTHING)
        return np.asarray(num_bytes * np.clip((part - _HALF_WARM) / (1.0 - _HALF_WARM), 0.0, 1.0))
