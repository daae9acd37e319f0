"""Kernels that are part of the all-reduce before them: sums and norms without a launch of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..kernels.terms import Array, KernelTimes
from .program import PricedEntry

Flags = NDArray[np.bool_]
# Launch and fixed work are those of the message, and so is the wait of a block for its row, which it holds already.
_SPARED = ("overhead", "launch", "rows")


def taken_along(entries: Sequence[PricedEntry], degrees: Mapping[str, Array]) -> Flags:
    """Return which entries, at which points, are part of the message before them: where that has several ranks.

    `degrees` are of mesh axes, point by point.
    """
    never = np.zeros(1, dtype=np.bool_)
    flags = (degrees[e.behind] > 1.0 if e.behind in degrees else never for e in entries)
    return np.stack(np.broadcast_arrays(*flags))


def along(times: KernelTimes, rides: Flags) -> KernelTimes:
    """Return the times of kernels of which some are part of another one: what is left of those is the slowest term.

    Source: `allreduce_fusion_kernel` of TensorRT-LLM and FlashInfer, where clusters of blocks hold a row each.
    """
    terms = {n: np.where(rides, 0.0, t) if n in _SPARED else t for n, t in times.terms.items()}
    left = [t for n, t in terms.items() if n not in _SPARED]
    slowest = np.max(np.stack(np.broadcast_arrays(np.zeros_like(times.time_s), *left)), axis=0)
    return replace(times, time_s=np.where(rides, slowest, times.time_s), terms=terms)
