"""Attention as separate kernels: two products, and passes over the scores between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from .attention_sizes import AttentionSizes
from .limits import ChipShare, Limit, Overhead, Scope
from .terms import KernelTimes

if TYPE_CHECKING:
    from ..system import Chip


@dataclass(frozen=True, slots=True)
class UnfusedConstants:
    """Constants of attention that writes its scores.

    Attributes:
        overhead_s: O, launches of its kernels.
        tensor: part of the tensor peak that the products reach.
        memory: part of the memory's bandwidth.
        passes: times that the whole matrix of scores goes through memory in the forward phase.
        masked_passes: what a mask adds to them.
        backward_passes: as `passes`, in the backward phase.
    """

    overhead_s: Overhead
    tensor: ChipShare
    memory: ChipShare
    passes: Annotated[float, Limit(Scope.KERNEL, 1.0, 30.0)]
    masked_passes: Annotated[float, Limit(Scope.KERNEL, 0.0, 30.0)]
    backward_passes: Annotated[float, Limit(Scope.KERNEL, 1.0, 30.0)]


def unfused_times(sizes: AttentionSizes, chip: Chip, constants: UnfusedConstants) -> KernelTimes:
    """Return times of attention that writes its scores.

    T = O + C + M: C all products, masked or not (four in the backward phase: scores are kept), M passes over the scores
    in the precision of operands, and the operands. Products and passes are kernels one after the other.
    """
    scores = sizes.rows * sizes.kv_len
    products = np.where(sizes.backward, 4.0 * (sizes.qk_dim + sizes.v_dim), sizes.flops_a_pair)
    tensor = scores * products / (constants.tensor * chip.matmul_flop_per_s(sizes.dtype))
    masked = np.where(sizes.causal | (sizes.window > 0), constants.masked_passes, 0.0)
    passes = np.where(sizes.backward, constants.backward_passes, constants.passes + masked)
    operands = (sizes.query_bytes + sizes.cache_bytes + sizes.output_bytes) * np.where(sizes.backward, 2.0, 1.0)
    bandwidth = constants.memory * chip.hbm_bytes_per_s
    softmax = passes * scores * sizes.operand_bytes / bandwidth
    memory = operands / bandwidth
    overhead = np.full_like(memory, constants.overhead_s)
    time_s = overhead + tensor + softmax + memory
    return KernelTimes(time_s, {"tensor": tensor, "softmax": softmax, "memory": memory, "overhead": overhead})
