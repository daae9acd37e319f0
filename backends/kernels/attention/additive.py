"""Fused attention by the additive model of the paper: load, products, pointwise work and store, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from ....ir.records import dataclass
from ..limits import ChipShare, ConstantRange, Overhead, Scope
from ..terms import Array, KernelTimes
from .sizes import AttentionSizes

if TYPE_CHECKING:
    from ...machine.chip import Chip

# Running maximum and sum of a row in fp32, each read and written: 4 x 4 bytes a pass (Dao et al., arXiv 2205.14135).
STATISTICS_BYTES = 16.0
# FLOPs of mask, scale, exponential, sum and rescaling for one score.
POINTWISE_FLOPS = (7.0, 8.0)


@dataclass(frozen=True, slots=True)
class AdditiveConstants:
    """Constants of the additive model.

    Attributes:
        overhead_s: O, the launch.
        tensor: part of the tensor peak.
        memory: part of the memory's bandwidth.
        vector: part of the vector peak that pointwise work and reductions reach.
        sram: on-chip bandwidth over that of the memory.
        block_elements: M_s, elements that the on-chip memory of a multiprocessor holds.
    """

    overhead_s: Overhead
    tensor: ChipShare
    memory: ChipShare
    vector: Annotated[float, ConstantRange(Scope.CHIP, 0.01, 1.0)]
    sram: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 100.0)]
    block_elements: Annotated[float, ConstantRange(Scope.KERNEL, 1024.0, 1e7)]


def additive_times(sizes: AttentionSizes, chip: Chip, constants: AdditiveConstants) -> KernelTimes:
    """Return times of fused attention, nothing hidden: t = t_load + t_products + t_pointwise + t_store + O.

    Products are bound by the tensor peak or by on-chip bandwidth, whichever is slower. Traffic is that of flash-1.
    """
    bandwidth = constants.memory * chip.hbm_bytes_per_s
    pairs = sizes.pairs()
    flops_s = pairs * sizes.flops_a_pair / (constants.tensor * chip.matmul_flop_per_s(sizes.dtype))
    # On-chip bytes for one score: its block written and read, and the operands of both products
    # spread over it.
    _, columns = _blocks(sizes, constants.block_elements)
    rows = np.minimum(columns, sizes.qk_dim)
    width = sizes.qk_dim + sizes.v_dim
    sram_s = (
        pairs
        * np.asarray(sizes.operand_bytes * (2.0 + width * (1.0 / rows + 1.0 / columns)))
        / (constants.sram * chip.hbm_bytes_per_s)
    )
    forward, backward = POINTWISE_FLOPS
    pointwise = pairs * np.where(sizes.backward, backward, forward) / (constants.vector * chip.vector_flop_per_s)
    loaded, stored = flash1_bytes(sizes, constants.block_elements)
    overhead = np.full_like(loaded, constants.overhead_s)
    terms = {"load": loaded / bandwidth, "tensor": np.maximum(flops_s, sram_s), "softmax": pointwise}
    terms |= {"store": stored / bandwidth, "overhead": overhead}
    return KernelTimes(np.asarray(sum(terms.values())), terms)


def flash1_bytes(sizes: AttentionSizes, block_elements: float) -> tuple[Array, Array]:
    """Return bytes that flash-1 loads from memory and stores to it, all heads together.

    For T_c blocks of keys, forward: keys and values once, and for each block queries and outputs read, outputs written,
    statistics read and written. Backward: four operands once, and for each block queries, outputs, their gradients and
    the queries' gradient, which is also written. Masks leave their part of the blocks.

    >>> sum(map(float, flash1_bytes(AttentionSizes.of(1, 1, 1, 2048, 2048, causal=False), 98304)))
    18710528.0
    """
    num_blocks, _ = _blocks(sizes, block_elements)
    passes = num_blocks * sizes.pairs() / (sizes.rows * sizes.kv_len)
    q, o, kv = sizes.query_bytes, sizes.output_bytes, sizes.cache_bytes
    statistics = STATISTICS_BYTES / 2.0 * sizes.rows
    loads = np.where(sizes.backward, 2.0 * q + 2.0 * o, q + o) + statistics
    stores = np.where(sizes.backward, q, o) + statistics
    back = np.where(sizes.backward, kv, 0.0)
    return np.asarray(kv + sizes.extra_bytes + passes * loads), np.asarray(back + passes * stores)


def _blocks(sizes: AttentionSizes, block_elements: float) -> tuple[Array, Array]:
    """Blocks of keys, and keys in one: B_c = ceil(M_s / (4 d))."""
    keys = np.ceil(block_elements / (4.0 * sizes.qk_dim))
    return np.ceil(sizes.kv_len / keys), keys
