"""Attention that never writes its scores: training kernels forward and backward, and the prefill of serving engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from ....ir.records import dataclass
from ..limits import ChipShare, ConstantRange, Overhead, Scope
from ..terms import Array, KernelTimes
from .sizes import TILE_ROWS, AttentionSizes

if TYPE_CHECKING:
    from ...machine.chip import Chip

# Keys of the block for which flash-1 reads queries and outputs once more, and the bytes of a row's running statistics.
KEY_BLOCK = 128.0
STATISTICS_BYTES = 16.0


@dataclass(frozen=True, slots=True)
class FlashConstants:
    """Constants of one fused kernel, with what runs beside it.

    Attributes:
        overhead_s: O, launch and fixed work.
        tensor: u_c, part of the tensor peak inside of a tile.
        exponent: x_e, part of the time of the exponentials that is not hidden behind products.
        start: s_0, fixed work of a row of queries, in keys.
        edge: s_m, work of a row on blocks that a mask cuts, in keys and for each side on which it does.
        row_clocks: c_r, fixed work of a row of queries whatever its width, in clocks of a multiprocessor.
        tail: w_t, part of a tile that the last wave leaves idle.
        passes: c_x, times that queries, keys and values go through memory; rotary embedding and the cache's copy count.
        reload: times that queries and outputs go through memory for each block of keys: 1 for flash-1.
        backward: part of u_c that the backward phase reaches.
        backward_exponent: x_e of the backward phase.
        backward_start: s_0 of the backward phase.
    """

    overhead_s: Overhead
    tensor: ChipShare
    exponent: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 4.0)]
    start: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2000.0)]
    edge: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2000.0)]
    row_clocks: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2000.0)]
    tail: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 5.0)]
    passes: Annotated[float, ConstantRange(Scope.CHIP, 0.5, 10.0)]
    reload: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2.0)]
    backward: Annotated[float, ConstantRange(Scope.KERNEL, 0.2, 2.0)]
    backward_exponent: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 8.0)]
    backward_start: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2000.0)]


def flash_times(sizes: AttentionSizes, chip: Chip, constants: FlashConstants) -> KernelTimes:
    """Return times of fused attention.

    T = O + ((B (1 + w_t SM / tiles))^1.5 + M^1.5)^(1/1.5)
    B = N (2 (d + d_v) / (u_c P) + x_e / E) + c_r R / (SM f),  N = pairs + R (s_0 + s_m sides)

    with R rows of queries, which fill whole tiles, E the exponentials a second and M the traffic over the bandwidth.
    On systolic arrays d and d_v fill whole arrays. Blocks that masks cut never
    add more than the mask saves. The backward phase has 2 (3 d + 2 d_v) FLOPs a pair and constants of its own.
    """
    k, clocks_per_s = constants, chip.num_sms * chip.matrix_hz
    # The last tile of queries computes rows that are not there.
    fill = np.ceil(sizes.q_len / TILE_ROWS) * TILE_ROWS / sizes.q_len
    seen, rows = _computed_pairs(sizes, k.edge), sizes.rows * fill
    # Fixed work of a row counts as so many keys more, which keeps one rate for all of it.
    pairs = seen * fill + rows * sizes.by_phase(k.start, k.backward_start)
    tensor_per_s = sizes.by_phase(k.tensor, k.tensor * k.backward) * chip.matmul_flop_per_s(sizes.dtype)
    tensor = pairs * sizes.flops_on(chip.array) / tensor_per_s
    exponent = sizes.by_phase(k.exponent, k.backward_exponent) * sizes.specials_a_pair
    # Exponentials run on units of their own, beside the products: only the part that does not hide is counted.
    softmax = pairs * exponent / chip.specials_per_s
    by_row = rows * (k.row_clocks * chip.has_threads) / clocks_per_s
    body = tensor + softmax + by_row
    # In the last wave part of the SMs is idle: the fewer tiles, the larger its share.
    tail = body * (k.tail * chip.has_threads) * chip.num_sms / sizes.tiles
    memory = flash_bytes(sizes, k, seen) / chip.hbm_bytes_per_s
    computed = body + tail
    # Roots, and no powers, give one number alone what they give it among others.
    hidden = np.cbrt(computed * np.sqrt(computed) + memory * np.sqrt(memory))
    time_s = hidden * hidden + k.overhead_s
    terms = {"tensor": tensor, "softmax": softmax, "rows": by_row, "waves": tail, "memory": memory}
    return KernelTimes(time_s, {**terms, "overhead": np.full_like(time_s, k.overhead_s)})


def _computed_pairs(sizes: AttentionSizes, edge: float) -> Array:
    """Pairs with the rest of the blocks that masks cut: the diagonal's, and a window's far end."""
    rows = sizes.rows
    causal = np.minimum(sizes.pairs(windowed=False) + edge * sizes.causal * rows, rows * sizes.kv_len)
    if not sizes.is_cut.any():
        return causal
    return np.minimum(sizes.pairs() + edge * (sizes.is_cut * 1.0 + sizes.causal) * rows, causal)


def flash_bytes(sizes: AttentionSizes, constants: FlashConstants, pairs: Array) -> Array:
    """Return bytes through memory: operands and outputs, older keys of a cache once, and what flash-1 reads anew."""
    cached, queries, outputs = sizes.cache_bytes, sizes.query_bytes, sizes.output_bytes
    # Keys of this call go through memory as often as queries do; those that lay in the cache before are read once.
    fresh = np.minimum(sizes.batch * sizes.kv_heads * sizes.q_len * sizes.key_bytes, cached)
    phases = sizes.by_phase(1.0, 2.0)
    once = phases * (constants.passes * (queries + fresh) + outputs) + cached - fresh + sizes.extra_bytes
    if not constants.reload:
        return np.asarray(once)
    blocks = pairs / (sizes.rows * KEY_BLOCK)
    again = queries + 2.0 * outputs + STATISTICS_BYTES * sizes.rows
    return np.asarray(once + constants.reload * blocks * phases * again)
