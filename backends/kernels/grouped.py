"""Matrix products of groups of rows, each group with a matrix of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from ...ir.records import dataclass
from ...ir.sizes.masking import touched_share
from .dequantise import THIN_ROWS
from .limits import ConstantRange, Overhead, Scope
from .padded import PaddedRoofline, ingest_of
from .terms import Array, KernelTimes

if TYPE_CHECKING:
    from ...ir.sizes.expr import Num
    from ..machine.chip import Chip
    from .gemm import GemmConstants

# Rows that a tile holds, by dtype: each group is padded to them. The measured tables tell 16, 64 and 128 apart only for
# nvfp4, whose kernels have one family of tiles.
TILE_ROWS = 64
TILE_ROWS_NVFP4 = 128
# Kernels for weights in fewer bits than rows have thinner tiles.
_THIN = ("int4_group", "mxfp4")


@dataclass(frozen=True, slots=True)
class GroupedConstants:
    """Constants of grouped products at one layout and precision.

    Attributes:
        overhead_s: O, launch and fixed work.
        tensor: u_c, part of the matrix peak.
        memory: u_m, part of the memory's bandwidth.
    """

    overhead_s: Overhead
    tensor: Annotated[float, ConstantRange(Scope.CHIP, 0.1, 1.0)]
    memory: Annotated[float, ConstantRange(Scope.CHIP, 0.1, 1.0)]


@dataclass(frozen=True, slots=True)
class GroupedSizes:
    """Sizes of grouped products [rows, k] x [groups, k, n]; all arrays broadcast.

    Attributes:
        padded_rows: rows of all groups, each padded to whole tiles.
        rows: rows that hold data.
        touched: groups that have a row.
        n: columns of the result.
        k: the inner dim.
        operand_bytes: bytes of an element of both operands, scales included.
        result_bytes: bytes of an element of the result.
        matrix_bytes: bytes of an element of the matrices where they differ, else 0.
    """

    padded_rows: Array
    rows: Array
    touched: Array
    n: Array
    k: Array
    operand_bytes: float
    result_bytes: float
    matrix_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class PaddedGroups:
    """The longest time of groups, on a chip whose units pad rows less than the tiles of measured kernels.

        T_most = ramp + (1 + slack) max(X / (u_m BW), X / I, W, min(2 [m n k] E / (u_c P), 2 m n k E / P_v))

    of E touched groups with m rows each, by the rule, slack and ramp of other products. Nothing is faster than X / I.
    """

    roofline: PaddedRoofline
    slack: float
    ramp_s: float

    @classmethod
    def of(cls, chip: Chip, bytes_per_s: Num, flops_per_s: Num, like: GemmConstants) -> PaddedGroups:
        """Return the bound of groups at the rates that they reach on a chip."""
        rates = bytes_per_s, ingest_of(chip, like.draw), flops_per_s
        return cls(PaddedRoofline.of(chip, *rates), like.slack, like.ramp_s)

    def held(
        self, tiled: KernelTimes, rows: Array, touched: Array, matrix: tuple[Array, Array], moved: Array, widen_s: Num
    ) -> KernelTimes:
        """Hold the time of tiles to it, and its terms `tensor` and `ingest` with it; a `matrix` is columns x inner."""
        each = rows / np.maximum(touched, 1.0)
        # Rows that chance distributes leave half of what they are padded to empty, one by one.
        spread = np.where(each > 1.0, each + 0.5 * (self.roofline.rows - 1.0), each)
        computed, ingest, loaded = self.roofline.seconds(spread, *matrix, touched, moved)
        most = self.ramp_s + (1.0 + self.slack) * np.maximum(np.maximum(computed, ingest), np.maximum(loaded, widen_s))
        is_most = most < tiled.time_s
        tensor = np.where(is_most, (1.0 + self.slack) * computed, tiled.terms["tensor"])
        found = np.maximum(np.where(is_most, most, tiled.time_s), ingest)
        return KernelTimes(found, {**tiled.terms, "tensor": tensor, "ingest": ingest})


def tile_rows(dtype: str) -> int:
    """Return the rows that groups are padded to, at a dtype of the operands, or of weights in fewer bits than rows."""
    return TILE_ROWS_NVFP4 if dtype == "nvfp4" else THIN_ROWS if dtype in _THIN else TILE_ROWS


def padded(loads: Array, tile: int) -> Array:
    """Add up the rows of groups, the last axis, each padded to whole tiles.

    >>> float(padded(np.array([1.0, 64.0, 0.0, 65.0]), 64))
    256.0
    """
    return np.asarray((tile * np.ceil(loads / tile)).sum(axis=-1))


def spread_evenly(rows: Array, groups: Array, dtype: str) -> tuple[Array, Array]:
    """Return the groups that get a row, and the rows with padding, when rows go to groups by even chances.

    Each group gets one with probability 1 - (1 - 1/n)^rows; each that does is padded by half a tile on average.

    >>> touched, padded_rows = spread_evenly(np.array(1.0), np.array(8.0), "bf16")
    >>> float(touched), float(padded_rows)
    (1.0, 32.5)
    """
    count = np.maximum(groups, 1.0)
    touched = np.asarray(count * touched_share(rows, count))
    return touched, np.asarray(rows + touched * 0.5 * (tile_rows(dtype) - 1))


def product_times(
    flops: Array, weight_bytes: Array, peak: Num, chip: Chip, tensor: float, memory: float, widen_s: Array | float = 0.0
) -> Array:
    """Return ((c^2 + q^2)^2 + w^4)^(1/4), c = F / (u_c P), q = W / (u_m BW), w that of widening weights, in seconds.

    Widening hides well behind loads: at half of what they take it leaves 3.87 of a fourfold gain (Marlin, arXiv
    2408.11743, batch 16), where a square root would leave 3.6.
    """
    plain = np.hypot(flops / (tensor * peak), weight_bytes / (memory * chip.hbm_bytes_per_s))
    return plain if np.ndim(widen_s) == 0 and widen_s == 0.0 else np.asarray(np.power(plain**4 + widen_s**4, 0.25))


def widening_s(weights: Array, touched: Array, padded_rows: Array, chip: Chip, clocks: float) -> Array:
    """Return the time to widen the matrices of all groups, of `weights` elements each, once a tile of rows."""
    tiles = np.maximum(touched, padded_rows / TILE_ROWS)
    return np.asarray(weights * tiles * clocks / (chip.num_sms * chip.matrix_hz))


def grouped_times(
    sizes: GroupedSizes,
    peak: Num,
    chip: Chip,
    constants: GroupedConstants,
    clocks: float = 0.0,
    most: PaddedGroups | None = None,
) -> KernelTimes:
    """Price grouped products in seconds: T = O + ((c^2 + q^2)^2 + w^4)^(1/4) of FLOPs with padding, bytes, widening.

    Args:
        sizes: what is multiplied.
        peak: the chip's matrix peak for the operands, FLOP/s.
        chip: the chip.
        constants: those of the layout and dtype.
        clocks: of a multiprocessor to widen one weight, 0 where the matrix units take them as they are.
        most: what they take at most on these units; None where only tiles of measured kernels count.
    """
    flops = 2.0 * sizes.padded_rows * sizes.n * sizes.k
    moved = sizes.touched * sizes.n * sizes.k * (sizes.matrix_bytes or sizes.operand_bytes) + sizes.rows * (
        sizes.k * sizes.operand_bytes + sizes.n * sizes.result_bytes
    )
    widen_s = widening_s(sizes.n * sizes.k, sizes.touched, sizes.padded_rows, chip, clocks) if clocks else 0.0
    both = product_times(flops, moved, peak, chip, constants.tensor, constants.memory, widen_s)
    terms = {"tensor": flops / (constants.tensor * peak), "memory": moved / (constants.memory * chip.hbm_bytes_per_s)}
    terms |= {"widen": np.asarray(widen_s)} if clocks else {}
    products = KernelTimes(both, terms)
    if most is not None:
        products = most.held(products, sizes.rows, sizes.touched, (sizes.n, sizes.k), moved, widen_s)
    start = np.array(constants.overhead_s)
    return KernelTimes(start + products.time_s, {"overhead": start, **products.terms})
