"""Kernel time as a roofline: the slowest of tensor units, vector units and memory, plus one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..ir.ops.masking import executed_share, touched_share
from .program import Entry, Group
from .system import System

Array = NDArray[np.float64]
BOUNDS = ("tensor", "vector", "memory")


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Times of a group, entries x points: the terms of the roofline and the launch; `time_s` is what counts."""

    tensor_s: Array
    vector_s: Array
    memory_s: Array
    launch_s: float

    @property
    def time_s(self) -> Array:
        """The slowest term, plus the launch."""
        return np.maximum(np.maximum(self.tensor_s, self.vector_s), self.memory_s) + self.launch_s

    def bound(self, row: int, point: int = 0) -> str:
        """Name the term that decides, `launch` when the launch outweighs it."""
        terms = [float(t[row, point]) for t in (self.tensor_s, self.vector_s, self.memory_s)]
        return "launch" if self.launch_s > max(terms) else BOUNDS[int(np.argmax(terms))]


class Backend(Protocol):
    """What prices kernels. The built-in roofline is one; a plug-in takes the same path."""

    @property
    def name(self) -> str:
        """What people call it; unique among the backends in use."""
        ...

    def claims(self, entry: Entry) -> bool:
        """Whether this backend prices the entry."""
        ...

    def time(self, group: Group, amounts: Array, system: System) -> KernelTimes:
        """Price a group whose table was evaluated to `amounts` (rows x points)."""
        ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """The first model: peaks and bandwidth of the data sheet times one efficiency each."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "roofline"

    def claims(self, entry: Entry) -> bool:
        """Everything that computes."""
        return entry.message is None

    def time(self, group: Group, amounts: Array, system: System) -> KernelTimes:
        """T = max(F / (u_t P), V / (u_v P_v), Q / (u_m BW)) + launch, with masked attention blocks skipped."""
        n = len(group.entries)
        tensor, vector, moved = amounts[:n], amounts[n : 2 * n], amounts[2 * n : 3 * n]
        share = _shares(group, amounts[3 * n :])
        moved = moved - _untouched(group, amounts)
        peaks = _column([system.chip.matmul_flop_per_s(_unit(e)) if e.work.gemms or e.work.attention else 1.0
                         for e in group.entries])  # fmt: skip
        k, chip = system.kernels.roofline["default"], system.chip
        return KernelTimes(
            tensor * share / (peaks * k.matmul_efficiency),
            vector * share / (chip.vector_flop_per_s * k.vector_efficiency),
            moved / (chip.hbm_bytes_per_s * k.memory_efficiency),
            system.stack.launch_s,
        )


def _untouched(group: Group, amounts: Array) -> Array:
    """Bytes of expert weights that no row needs."""
    banks = [i for i, e in enumerate(group.entries) if e.work.experts is not None]
    saved = np.zeros((len(group.entries), amounts.shape[1]))
    if banks:
        weights, rows, experts = np.split(amounts[-3 * len(banks) :], 3)
        saved[banks] = weights * (1.0 - touched_share(rows, experts))
    return saved


def _unit(entry: Entry) -> str:
    return str(entry.dtype)


def _shares(group: Group, lengths: Array) -> Array:
    """The part of each entry's FLOPs that is executed: below one for masked attention."""
    masked = [i for i, e in enumerate(group.entries) if e.work.attention is not None]
    share = np.ones((len(group.entries), lengths.shape[1] if lengths.size else 1))
    for row, i in enumerate(masked):
        shape = group.entries[i].work.attention
        if shape is not None:
            q, kv = lengths[row], lengths[len(masked) + row]
            share[i] = executed_share(q, kv, shape.causal, shape.window, shape.balanced)
    return share


def _column(values: Sequence[float]) -> Array:
    return np.array(values, dtype=np.float64)[:, None]
