"""Attention of a few new tokens over a cache: bound by reading it, by what a thread block reads alone, or by both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from ....ir.records import dataclass
from ..limits import ChipShare, ConstantRange, Overhead, Scope
from ..terms import KernelTimes
from .sizes import AttentionSizes

if TYPE_CHECKING:
    from ...machine.chip import Chip


@dataclass(frozen=True, slots=True)
class DecodeConstants:
    """Constants of decode kernels, of the two kinds that libraries have.

    One takes the queries of all heads that share keys in one thread block, on tensor units. The other has a thread
    block for each head of queries, and reads shared keys once for each; it is also what runs where heads share none.

    Attributes:
        overhead_s: O, launches and fixed work of the two or three kernels of a call.
        memory: u_m, part of the memory's bandwidth.
        tensor: u_c, part of the tensor peak.
        group_limit: heads of queries for a head of keys up to which the library takes them in one block; 0 for never.
        group_rate: r_g, bytes of keys and values that such blocks read in a clock of a multiprocessor.
        head_rate: r_h, the same for blocks of one head.
        block_clocks: c_b, fixed work of a block, in clocks.
        ramp: w_0, part of a wave that a multiprocessor loses at the start and the end.
        split: how far the parts that a sequence is cut into fill a chip that batch and heads leave idle.
        split_keys: keys of the smallest part that a sequence is cut into.
        row_clocks: c_r, fixed work of a row of queries, rotary embedding included, in clocks of a multiprocessor.
        min_rows: rows that the tensor units take at least.
        warm: part of L2 that still holds what blocks of one head read in the call before; above 0 only where a
            benchmark repeats one call.
        page: keys of a page of the cache, whole pages of which are read.
    """

    overhead_s: Overhead
    memory: ChipShare
    tensor: ChipShare
    group_limit: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 1024.0)]
    group_rate: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 500.0)]
    head_rate: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 500.0)]
    block_clocks: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 20000.0)]
    ramp: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 3.0)]
    split: Annotated[float, ConstantRange(Scope.KERNEL, 0.05, 2.0)]
    split_keys: Annotated[float, ConstantRange(Scope.KERNEL, 16.0, 8192.0)]
    row_clocks: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 5000.0)]
    min_rows: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 128.0)]
    warm: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 1.0)]
    page: Annotated[float, ConstantRange(Scope.LIBRARY, 1.0, 1024.0)]


def decode_times(sizes: AttentionSizes, chip: Chip, constants: DecodeConstants) -> KernelTimes:
    """Return times of attention over a cache.

    T = O + (M^3 + W^3 + C^3)^(1/3) + c_r R / (SM f)

    M is the cache read once over u_m BW, C the products, R the rows of queries. W is the rounds of thread blocks over
    the multiprocessors, rounded up and w_0 more, each as long as a block takes for its sequence: bytes / r + c_b
    clocks. Where there are fewer blocks than multiprocessors a sequence is cut into parts of at least `split_keys`; the
    fixed work of parts side by side is that of one block.
    """
    k, clocks_per_s = constants, chip.num_sms * chip.matrix_hz
    sharing = sizes.heads / sizes.kv_heads
    grouped = np.asarray((sharing > 1.0) & (sharing <= k.group_limit))
    # Engines cut the cache into pages and read whole ones.
    keys = np.ceil(sizes.keys_seen / k.page) * k.page
    sequence_bytes = keys * sizes.key_bytes
    read = sizes.batch * sizes.kv_heads * sequence_bytes + sizes.query_bytes + sizes.output_bytes + sizes.extra_bytes
    # A benchmark that repeats one call finds part of the cache in L2.
    kept = ~grouped * np.minimum(read, k.warm * chip.l2_bytes)
    memory = (read - kept) / (k.memory * chip.hbm_bytes_per_s)
    blocks = sizes.batch * np.where(grouped, sizes.kv_heads, sizes.heads) / chip.num_sms
    # A kernel for groups reads a key once for all heads that share it; others read it for each row of queries.
    reading = np.where(grouped, sequence_bytes / k.group_rate, sequence_bytes * sizes.q_len / k.head_rate)
    reading = reading / chip.ingest_scale
    # Rounds of blocks over the multiprocessors, of which there are `blocks` for each; less than one
    # where cut.
    cut = np.minimum(np.maximum(blocks / k.split, k.split_keys / keys), 1.0 + k.ramp)
    rounds = np.where(blocks > 1.0, np.ceil(blocks) + k.ramp, cut)
    # Parts of one sequence run side by side, so that their fixed work is that of one block however many there are.
    fixed = np.where(blocks > 1.0, rounds, 1.0) * k.block_clocks
    waves = (rounds * reading + fixed) * chip.has_threads / chip.matrix_hz
    # The tensor units take so many rows at least: one query of one head fills a small part of them.
    together = np.where(grouped, sharing, 1.0) * sizes.q_len
    lanes = np.maximum(together, k.min_rows) / together * sizes.rows
    tensor = lanes * keys * sizes.flops_a_pair / (k.tensor * chip.matmul_flop_per_s(sizes.dtype))
    by_row = sizes.rows * (k.row_clocks * chip.has_threads) / clocks_per_s
    time_s = (
        np.cbrt(memory * memory * memory + waves * waves * waves + tensor * tensor * tensor) + by_row + k.overhead_s
    )
    terms = {"tensor": tensor, "softmax": np.zeros_like(time_s), "rows": by_row, "waves": waves, "memory": memory}
    return KernelTimes(time_s, {**terms, "overhead": np.full_like(time_s, k.overhead_s)})
