"""The roofline of a product on units that pad its rows: what bounds it on a chip that nobody has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...ir.records import dataclass
from .terms import Array

if TYPE_CHECKING:
    from ...ir.sizes.expr import Num
    from ..machine.chip import Chip

# Rows of one operand and of the other that matrix instructions of GPUs take at least: PTX ISA, `mma.m16n8k16`.
LEAST_ROWS, LEAST_OTHER = 8.0, 16.0
# Part of the vector peak that products of few rows reach: it counts a fused multiply-add as two, operands are widened.
VECTOR_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PaddedRoofline:
    """Rates of a chip, and what its units pad a product to.

    Attributes:
        memory_bytes_per_s: what products reach of the memory.
        ingest_bytes_per_s: what the units of all of it take in; infinite where nothing but the memory limits it.
        matrix_flop_per_s: what products reach of the matrix peak.
        vector_flop_per_s: the same of the vector peak.
        rows: rows of the result to whole multiples of which a product is padded.
        columns: the same of its columns.
        inner: the same of what is summed over.
        least_rows: rows that pass an array while it takes its next weights.
    """

    memory_bytes_per_s: Num
    ingest_bytes_per_s: Num
    matrix_flop_per_s: Num
    vector_flop_per_s: Num
    rows: float
    columns: float
    inner: float
    least_rows: float

    @classmethod
    def of(cls, chip: Chip, memory: Num, ingest: Num, matrix: Num) -> PaddedRoofline:
        """Put rates and the padding of a chip's units together.

        An array takes a row of weights a clock, and so as many clocks as it has rows for all of them, unless the chip
        says what its units take in.
        """
        vector = chip.vector_flop_per_s * VECTOR_SHARE
        if chip.array is not None:
            least = float(chip.array.inner) if chip.ingest_bytes_per_s is None else 1.0
            return cls(memory, ingest, matrix, vector, 1.0, float(chip.array.columns), float(chip.array.inner), least)
        rows, columns = (LEAST_ROWS, LEAST_OTHER) if chip.has_threads else (1.0, 1.0)
        return cls(memory, ingest, matrix, vector, rows, columns, 1.0, 1.0)

    def seconds(self, m: Array, n: Array, k: Array, batch: Array, moved: Array) -> tuple[Array, Array, Array]:
        """Return the times of matrix or vector units, the faster, of on-chip ingest, and of memory.

        >>> machine = PaddedRoofline(1e12, 1e13, 1e14, 1e12, 8, 16, 1, 1)
        >>> [float(s) for s in machine.seconds(*np.array([1.0, 1600, 1e3, 1, 3.2e6]))]
        [2.56e-07, 3.2e-07, 3.2e-06]
        """
        padded = np.maximum(_whole(m, self.rows), self.least_rows) * _whole(n, self.columns)
        if self.rows > 1.0:  # operands change places where that pads less
            padded = np.minimum(padded, _whole(m, self.columns) * _whole(n, self.rows))
        matrix = 2.0 * padded * _whole(k, self.inner) * batch / self.matrix_flop_per_s
        vector = 2.0 * m * n * k * batch / self.vector_flop_per_s
        return np.minimum(matrix, vector), moved / self.ingest_bytes_per_s, moved / self.memory_bytes_per_s


def ingest_of(chip: Chip, draw: float) -> Num:
    """Return the on-chip ingest of a chip in bytes/s; `draw` is the bytes that an SM takes in a clock."""
    if chip.has_threads:
        return draw * chip.num_sms * chip.matrix_hz * chip.ingest_scale
    return np.inf if chip.ingest_bytes_per_s is None else chip.ingest_bytes_per_s


def _whole(size: Array, step: float) -> Array:
    return size if step == 1.0 else np.asarray(np.ceil(size / step) * step)
