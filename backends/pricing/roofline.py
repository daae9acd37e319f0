"""Kernel time as a roofline: the slowest of tensor units, vector units and memory, plus one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np

from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ...ir.sizes.masking import executed_share, touched_share
from ..kernels.operands import unit_of
from ..kernels.terms import KernelTimes, as_rows
from ..machine.system import System
from .amounts import Amounts, Array, AttentionCalls
from .program import PricedEntry, PricingGroup

# What is left of a model when entries and system are known: amounts to seconds.
Pricer: TypeAlias = Callable[[Amounts], KernelTimes]


class Backend(Protocol):
    """What prices kernels. The built-in roofline is one; a plug-in takes the same path."""

    @property
    def name(self) -> str:
        """What people call it; unique among the backends in use."""
        ...

    @property
    def formula(self) -> str:
        """How the terms make up the time, for `--explain`."""
        ...

    def claims(self, entry: PricedEntry) -> bool:
        """Whether this backend prices the entry."""
        ...

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        """Name the numbers of the system that the time of an entry rests on, by their paths or what they begin with."""
        ...

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        """Look up all that does not depend on the plan, and return what prices the amounts of these entries."""
        ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """The first model: peaks and bandwidth of the data sheet times one efficiency each."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "roofline"

    @property
    def formula(self) -> str:
        """The slowest of three, and a launch."""
        return "max(tensor, vector, memory) + launch"

    def claims(self, entry: PricedEntry) -> bool:
        """Everything that computes."""
        return entry.message is None

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        """Peaks of the units in use, bandwidth, and an efficiency for each."""
        of, work = "calibration.roofline.default", entry.work
        tensor = (
            (f"chip.matmul.{unit_of(str(entry.dtype))}", f"{of}.matmul_efficiency") if work.tensor_flops != 0 else ()
        )
        vector = ("chip.vector.fp32", f"{of}.vector_efficiency") if work.vector_flops != 0 else ()
        return (*tensor, *vector, "chip.memory.hbm.bandwidth", f"{of}.memory_efficiency", "stack.launch_overhead")

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        """T = max(F / (u_t P), V / (u_v P_v), Q / (u_m BW)) + launch, with masked attention blocks skipped."""
        peaks = as_rows([_peak(e, system) for e in group.entries])
        k, chip, launch_s = system.kernels.roofline["default"], system.chip, system.stack.launch_s

        def price(amounts: Amounts) -> KernelTimes:
            share = _shares(group, amounts.lengths)
            moved = amounts.num_bytes - _untouched(amounts)
            terms = {
                "tensor": amounts.tensor_flops * share / (peaks * k.matmul_efficiency),
                "vector": amounts.vector_flops * share / (chip.vector_flop_per_s * k.vector_efficiency),
                "memory": moved / (chip.hbm_bytes_per_s * k.memory_efficiency),
                "launch": np.full_like(moved, launch_s),
            }
            slowest = np.maximum(np.maximum(terms["tensor"], terms["vector"]), terms["memory"])
            return KernelTimes(slowest + launch_s, terms)

        return price


def _untouched(amounts: Amounts) -> Array:
    """Bytes of expert weights that no row needs."""
    banks = amounts.banks
    saved = np.zeros_like(amounts.num_bytes)
    saved[banks.owner] = banks.weight_bytes * (1.0 - touched_share(banks.rows, banks.num_experts))
    return saved


def _peak(entry: PricedEntry, system: System) -> Num:
    """The peak of the units that an entry's products run at; anything for what has none."""
    multiplies = entry.work.gemms or entry.work.attention
    return system.chip.matmul_flop_per_s(unit_of(str(entry.dtype))) if multiplies else 1.0


def _shares(group: PricingGroup, lengths: AttentionCalls) -> Array:
    """The part of each entry's FLOPs that is executed: below one for masked attention."""
    share = np.ones((len(group.entries), lengths.q_len.shape[1]))
    for row, i in enumerate(lengths.owner):
        shape = group.entries[i].work.attention
        if shape is not None:
            q, kv = lengths.q_len[row], lengths.kv_len[row]
            share[i] = executed_share(q, kv, shape.causal, shape.reach, shape.balanced)
    return share
