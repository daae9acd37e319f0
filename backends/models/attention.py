"""Calls of attention in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...ir.errors import UnknownNameError
from ...ir.ops.base import AttentionShape
from ...ir.types import DType
from ..amounts import Amounts, Index
from ..kernels.attention import attention_times
from ..kernels.attention_additive import additive_times
from ..kernels.attention_sizes import AttentionSizes
from ..kernels.attention_unfused import unfused_times
from ..kernels.terms import KernelTimes
from ..power import powered
from ..program import Entry, Group
from ..system import System
from .kinds import by_kind

# What reads a cache; graphs keep keys and values of heads, never latents.
DECODE = "grouped"
_FORWARD_PRODUCTS = 2
_Price: TypeAlias = Callable[[AttentionSizes], KernelTimes]


@dataclass(frozen=True, slots=True)
class AttentionModel:
    """Attention by the kernel that the software stack has: fused, unfused, or the additive model of the paper."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "attention"

    @property
    def formula(self) -> str:
        """How its terms make up the time."""
        return "overhead + (tensor + softmax + rows + waves) and memory, overlapped; a decode step is memory by waves"

    def claims(self, entry: Entry) -> bool:
        """Calls of attention, forward and backward."""
        return entry.work.attention is not None

    def numbers(self, entry: Entry, system: System) -> tuple[str, ...]:
        """Peak, bandwidth, SMs, clock and the constants of the stack's kernel."""
        kind = system.stack.attention
        silicon = (f"chip.matmul.{entry.dtype}", "chip.memory.hbm.bandwidth", "chip.num_sms", "chip.clock")
        classes = ("attention", "unfused_attention", "additive_attention")
        return (*silicon, *(f"calibration.{cls}.{kind}." for cls in classes), f"calibration.decode.{DECODE}.")

    def time(self, group: Group, amounts: Amounts, system: System) -> KernelTimes:
        """Price calls, those of one dtype at a time."""
        calls = [e.work.attention for e in group.entries if e.work.attention is not None]
        price = _kernel(system)

        def of_dtype(dtype: str, rows: Index) -> KernelTimes:
            return price(_sizes(amounts, rows, [calls[i] for i in rows], dtype))

        return by_kind([str(e.dtype) for e in group.entries], amounts.num_bytes.shape, of_dtype)


def _kernel(system: System) -> _Price:
    """Return the kernel of the stack; UnknownNameError names the nearest."""
    kind, k, chip = system.stack.attention, system.kernels, powered(system.chip)
    if kind in k.attention:
        return lambda sizes: attention_times(sizes, chip, k.attention[kind], k.decode.get(DECODE))
    if kind in k.unfused_attention:
        return lambda sizes: unfused_times(sizes, chip, k.unfused_attention[kind])
    if kind in k.additive_attention:
        return lambda sizes: additive_times(sizes, chip, k.additive_attention[kind])
    raise UnknownNameError.of("kernel of attention", kind, [*k.attention, *k.unfused_attention, *k.additive_attention])


def _sizes(amounts: Amounts, rows: Index, calls: Sequence[AttentionShape], dtype: str) -> AttentionSizes:
    def column(values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.array(values, dtype=np.float64)[:, None]

    def flags(values: Sequence[bool]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.array(values, dtype=np.bool_)[:, None]

    lengths = amounts.lengths
    width = DType(dtype).num_bytes
    return AttentionSizes(
        batch=lengths.batch[rows], heads=lengths.heads[rows], kv_heads=lengths.kv_heads[rows],
        q_len=lengths.q_len[rows], kv_len=lengths.kv_len[rows], qk_dim=column([c.qk_dim for c in calls]),
        v_dim=column([c.v_dim for c in calls]), causal=flags([c.causal for c in calls]),
        window=column([c.window for c in calls]), balanced=flags([c.balanced for c in calls]),
        latent=np.array(False), backward=flags([c.num_gemms > _FORWARD_PRODUCTS for c in calls]),
        operand_bytes=np.array(width), kv_bytes=np.array(width), dtype=dtype,
    )  # fmt: skip
