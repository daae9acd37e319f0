"""Attention as separate kernels: two products, and passes over the scores between them."""

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
class UnfusedConstants:
    """Constants of attention that writes its scores.

    Attributes:
        overhead_s: O, launches of its kernels.
        tensor: part of the tensor peak that the products reach.
        memory: part of the memory's bandwidth.
        passes: times that the whole matrix of scores goes through memory in the forward phase.
        masked_passes: what a mask adds to them.
        backward_passes: as `passes`, in the backward phase.
        operand_passes: times that queries, keys, values and outputs go through memory, copied into other layouts too.
    """

    overhead_s: Overhead
    tensor: ChipShare
    memory: ChipShare
    passes: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 30.0)]
    masked_passes: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 30.0)]
    backward_passes: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 30.0)]
    operand_passes: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 30.0)]


def unfused_times(sizes: AttentionSizes, chip: Chip, constants: UnfusedConstants) -> KernelTimes:
    """Return times of attention that writes its scores.

    T = O + C + M: C all products, masked or not (four in the backward phase: scores are kept), M passes over the scores
    in the precision of operands, and the operands. Products and passes are kernels one after the other.
    """
    k, scores = constants, sizes.rows * sizes.kv_len
    products = sizes.by_phase(1.0, 2.0) * 2.0 * (sizes.qk_dim + sizes.v_dim)
    tensor = scores * products / (k.tensor * chip.matmul_flop_per_s(sizes.dtype))
    masked = (sizes.causal | (sizes.window > 0)) * sizes.by_phase(k.masked_passes, 0.0)
    passes = sizes.by_phase(k.passes, k.backward_passes) + masked
    bandwidth = k.memory * chip.hbm_bytes_per_s
    through = passes * scores * sizes.operand_bytes / bandwidth
    whole = sizes.batch * sizes.kv_heads * sizes.kv_len * sizes.key_bytes
    operands = sizes.query_bytes + whole + sizes.output_bytes
    memory = k.operand_passes * sizes.by_phase(1.0, 2.0) * operands / bandwidth + sizes.extra_bytes / bandwidth
    time_s = tensor + through + memory + k.overhead_s
    overhead = np.full_like(time_s, k.overhead_s)
    return KernelTimes(time_s, {"tensor": tensor, "scores": through, "memory": memory, "overhead": overhead})
