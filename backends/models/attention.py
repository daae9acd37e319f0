"""Calls of attention in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...ir.errors import UnknownNameError
from ...ir.ops.base import AttentionShape
from ...ir.types import DType
from ..amounts import Lengths
from ..kernels.attention import attention_times
from ..kernels.attention_additive import additive_times
from ..kernels.attention_sizes import AttentionSizes, Flags
from ..kernels.attention_unfused import unfused_times
from ..kernels.terms import Array as Column
from ..kernels.terms import KernelTimes
from ..power import powered
from ..program import Entry, Group
from ..roofline import Pricer
from ..system import System
from .kinds import Rows, by_kind

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

    def bind(self, group: Group, system: System) -> Pricer:
        """Price calls, those of one dtype at a time."""
        price = _kernel(system)

        def of_dtype(dtype: str, rows: Rows) -> Pricer:
            form = _Form.of([e.work.attention for e in group.entries if e.work.attention and str(e.dtype) == dtype])
            return lambda amounts: price(form.sizes(amounts.lengths, rows, dtype))

        return by_kind([str(e.dtype) for e in group.entries], of_dtype)


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


@dataclass(frozen=True, slots=True)
class _Form:
    """What calls of attention have whatever their lengths, as columns."""

    qk_dim: Column
    v_dim: Column
    window: Column
    causal: Flags
    balanced: Flags
    backward: Flags

    @classmethod
    def of(cls, calls: Sequence[AttentionShape]) -> _Form:
        """Take the calls one under another."""
        numbers = np.array([(c.qk_dim, c.v_dim, c.window) for c in calls], dtype=np.float64)
        flags = np.array([(c.causal, c.balanced, c.num_gemms > _FORWARD_PRODUCTS) for c in calls], dtype=np.bool_)
        return cls(*numbers.T[..., None], *flags.T[..., None])

    def sizes(self, lengths: Lengths, rows: Rows, dtype: str) -> AttentionSizes:
        """Return the calls with their lengths."""
        width = np.array(DType(dtype).num_bytes)
        return AttentionSizes(
            batch=lengths.batch[rows], heads=lengths.heads[rows], kv_heads=lengths.kv_heads[rows],
            q_len=lengths.q_len[rows], kv_len=lengths.kv_len[rows], qk_dim=self.qk_dim, v_dim=self.v_dim,
            causal=self.causal, window=self.window, balanced=self.balanced, latent=np.array(False),
            backward=self.backward, operand_bytes=width, kv_bytes=width, dtype=dtype,
        )  # fmt: skip
