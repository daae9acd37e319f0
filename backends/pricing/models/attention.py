"""Calls of attention in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ....ir.errors import UnknownNameError
from ....ir.ops.base import AttentionShape
from ....ir.records import dataclass
from ....ir.types import DType
from ...kernels.attention.additive import additive_times
from ...kernels.attention.forms import attention_times
from ...kernels.attention.sizes import AttentionSizes, Flags
from ...kernels.attention.unfused import unfused_times
from ...kernels.terms import Array as Column
from ...kernels.terms import KernelTimes
from ...machine.chip import Chip
from ...machine.power import powered
from ...machine.system import System
from ..amounts import AttentionCalls
from ..program import PricedEntry, PricingGroup
from ..roofline import Pricer
from .kinds import Rows, by_kind, first_kind

# What reads a cache: of keys and values by head, or of latents.
DECODE, LATENT = "grouped", "latent"
# What kernels of fused attention are called that were fitted to latent attention, expanded: keys wider than values.
_WIDER = "{}-mla"
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

    def claims(self, entry: PricedEntry) -> bool:
        """Calls of attention, forward and backward."""
        return entry.work.attention is not None

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        """Peak, bandwidth, SMs, clock and the constants of the stack's kernel."""
        kind, decode = _kinds(system, entry.work.attention, entry.dtype)
        memory = ("chip.memory.hbm.bandwidth", "chip.memory.ingest.bandwidth")
        silicon = (f"chip.matmul.{entry.dtype}", *memory, "chip.num_sms", "chip.clock")
        classes = ("attention", "unfused_attention", "additive_attention")
        return (*silicon, *(f"calibration.{cls}.{kind}." for cls in classes), f"calibration.decode.{decode}.")

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        """Price calls, those of one dtype, one of the cache and one kernel at a time."""
        calls = [e.work.attention for e in group.entries if e.work.attention]
        chip = powered(system, steady=group.entries[0].trains)
        kinds = [(e.dtype, e.second or e.dtype, *_kinds(system, e.work.attention, e.dtype)) for e in group.entries]

        def of_kind(of: tuple[DType, DType, str, str], rows: Rows) -> Pricer:
            dtype, cached, kind, decode = of
            price = _kernel(system, chip, kind, decode)
            form = _Form.of([call for call, other in zip(calls, kinds, strict=True) if other == of])
            read = _apart if system.stack.heads_apart else _shared
            return lambda amounts: price(read(form.sizes(amounts.lengths, rows, dtype, cached)))

        return by_kind(kinds, of_kind)


def _shared(sizes: AttentionSizes) -> AttentionSizes:
    """Calls of kernels in which queries of a group share what is read of the cache."""
    return sizes


def _apart(sizes: AttentionSizes) -> AttentionSizes:
    """Calls of kernels that read the cache of a group once for each of its queries, where there is one token."""
    return replace(sizes, kv_heads=np.where(sizes.q_len == 1, sizes.heads, sizes.kv_heads))


def _kinds(system: System, call: AttentionShape | None, dtype: DType) -> tuple[str, str]:
    """The kernels that a call runs, by their names in calibrations: over many queries, and over a cache."""
    kind, k = system.stack.attention, system.kernels
    if call is None:
        return kind, DECODE
    kind = first_kind(k.attention, f"{kind}-{dtype}", kind)
    wider = _WIDER.format(kind) if call.qk_dim > call.v_dim and not call.latent else kind
    return first_kind(k.attention, wider, kind), first_kind(k.decode, LATENT, DECODE) if call.latent else DECODE


def _kernel(system: System, chip: Chip, kind: str, decode: str) -> _Price:
    """Return a kernel of the stack; UnknownNameError names the nearest."""
    k = system.kernels
    if kind in k.attention:
        return lambda sizes: attention_times(sizes, chip, k.attention[kind], k.decode.get(decode))
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
    latent: Flags
    backward: Flags
    chosen: Flags
    softcap: Flags

    @classmethod
    def of(cls, calls: Sequence[AttentionShape]) -> _Form:
        """Take the calls one under another."""
        numbers = np.array([(c.qk_dim, c.v_dim, c.reach) for c in calls], dtype=np.float64)
        flags = np.array(
            [(c.causal, c.balanced, c.latent, c.num_gemms > _FORWARD_PRODUCTS, c.keys > 0, c.softcap) for c in calls],
            dtype=np.bool_,
        )
        return cls(*numbers.T[..., None], *flags.T[..., None])

    def sizes(self, lengths: AttentionCalls, rows: Rows, dtype: DType, cached: DType) -> AttentionSizes:
        """Return the calls with their lengths; keys and values are read as they are kept, and widened in the kernel."""
        return AttentionSizes(
            batch=lengths.batch[rows], heads=lengths.heads[rows], kv_heads=lengths.kv_heads[rows],
            q_len=lengths.q_len[rows], kv_len=lengths.kv_len[rows], qk_dim=self.qk_dim, v_dim=self.v_dim,
            causal=self.causal, window=self.window, balanced=self.balanced, latent=self.latent,
            backward=self.backward, operand_bytes=np.array(dtype.num_bytes), kv_bytes=np.array(cached.num_bytes),
            dtype=str(dtype), chosen=self.chosen, softcap=self.softcap, extra_bytes=lengths.extra_bytes[rows],
        )  # fmt: skip
