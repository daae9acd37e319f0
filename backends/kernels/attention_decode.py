"""Attention of a few new tokens over a cache: bound by reading it, by what a thread block reads alone, or by both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from .attention_sizes import AttentionSizes, Flags
from .limits import ChipShare, Limit, Overhead, Scope
from .terms import Array, KernelTimes

if TYPE_CHECKING:
    from ..system import Chip


@dataclass(frozen=True, slots=True)
class DecodeConstants:
    """Constants of decode kernels, of the two kinds that libraries have.

    One takes the queries of all heads that share keys in one thread block, on tensor units. The other, older one has a
    thread block for each head of queries, and reads shared keys once for each.

    Attributes:
        overhead_s: O, launches and fixed work of the two or three kernels of a call.
        memory: u_m, part of the memory's bandwidth.
        tensor: u_c, part of the tensor peak.
        group_limit: heads of queries for a head of keys up to which the library takes them in one block; 0 for never.
        group_rate: r_g, bytes of keys and values that such a block reads in a clock, alone on its multiprocessor.
        head_rate: r_h, the same for a block of one head.
        split: how far the blocks that a sequence is cut into, where heads and batch leave the chip idle, fill it.
        split_keys: keys of the smallest part that a sequence is cut into.
        row_clocks: c_r, fixed work of a row of queries, rotary embedding included, in clocks of a multiprocessor.
        min_rows: rows that the tensor units take at least.
        page: keys of a page of the cache, whole pages of which are read.
    """

    overhead_s: Overhead
    memory: ChipShare
    tensor: ChipShare
    group_limit: Annotated[float, Limit(Scope.LIBRARY, 0.0, 1024.0)]
    group_rate: Annotated[float, Limit(Scope.KERNEL, 1.0, 500.0)]
    head_rate: Annotated[float, Limit(Scope.KERNEL, 1.0, 500.0)]
    split: Annotated[float, Limit(Scope.KERNEL, 0.05, 2.0)]
    split_keys: Annotated[float, Limit(Scope.KERNEL, 16.0, 8192.0)]
    row_clocks: Annotated[float, Limit(Scope.KERNEL, 0.0, 5000.0)]
    min_rows: Annotated[float, Limit(Scope.KERNEL, 1.0, 128.0)]
    page: Annotated[float, Limit(Scope.LIBRARY, 1.0, 1024.0)]


def decode_times(sizes: AttentionSizes, chip: Chip, constants: DecodeConstants) -> KernelTimes:
    """Return times of attention over a cache.

    T = O + sqrt(M^2 + W^2 + C^2) + c_r R / (SM f): M the cache read once over u_m BW, W waves of blocks each reading
    its part at r bytes a clock, C the products, R rows of queries. Blocks are those of the kernel that `group_limit`
    says; a sequence is cut into parts of at least `split_keys` where there are fewer blocks than multiprocessors.
    """
    clocks_per_s = chip.num_sms * chip.clock_hz
    grouped = np.asarray(sizes.heads / sizes.kv_heads <= constants.group_limit)
    keys = np.ceil(sizes.keys_seen / constants.page) * constants.page
    read = sizes.batch * sizes.kv_heads * keys * sizes.key_bytes + sizes.query_bytes + sizes.output_bytes
    memory = read / (constants.memory * chip.hbm_bytes_per_s)
    waves = _waves(sizes, keys, grouped, chip.num_sms, constants) * _block_clocks(sizes, keys, grouped, constants)
    waves_s = waves / chip.clock_hz
    together = np.where(grouped, sizes.heads / sizes.kv_heads, 1.0) * sizes.q_len
    lanes = np.maximum(together, constants.min_rows) / together * sizes.rows
    tensor = lanes * keys * sizes.flops_a_pair / (constants.tensor * chip.matmul_flop_per_s(sizes.dtype))
    by_row = sizes.rows * constants.row_clocks / clocks_per_s
    overhead = np.full_like(memory, constants.overhead_s)
    time_s = overhead + np.sqrt(memory**2 + waves_s**2 + tensor**2) + by_row
    zero = np.zeros_like(memory)
    terms = {"tensor": tensor, "softmax": zero, "rows": by_row, "waves": waves_s, "memory": memory}
    return KernelTimes(time_s, {**terms, "overhead": overhead})


def _waves(sizes: AttentionSizes, keys: Array, grouped: Flags, num_sms: int, constants: DecodeConstants) -> Array:
    """Rounds of thread blocks over the multiprocessors; below one where a sequence is cut."""
    blocks = sizes.batch * np.where(grouped, sizes.kv_heads, sizes.heads) / num_sms
    parts = np.maximum(blocks / constants.split, constants.split_keys / keys)
    return np.asarray(np.where(blocks > 1.0, np.ceil(blocks), np.minimum(parts, 1.0)))


def _block_clocks(sizes: AttentionSizes, keys: Array, grouped: Flags, constants: DecodeConstants) -> Array:
    """Clocks of a block that reads a whole sequence; one of a single head reads it for each of its queries."""
    alone = keys * sizes.key_bytes
    return np.asarray(np.where(grouped, alone / constants.group_rate, alone * sizes.q_len / constants.head_rate))
