"""Which servers under which loads are kept, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...cost.serving.metrics import ServingMetrics
from ...ir.records import dataclass
from ..block import Array
from .rows import Rows
from .space import ServingSpace

Codes = NDArray[np.int8]
KEPT, TOO_MANY, TTFT, TPOT, E2EL, SAME = range(6)
REASONS = ("", "more than fits at once", "misses TTFT", "misses TPOT", "misses E2EL", "the same as another batch")
# What is late is over one, however little.
_MORE = float(np.nextafter(1.0, 2.0))


@dataclass(frozen=True, slots=True)
class Sorted:
    """Candidates of one group: how many went which way, and those that are kept."""

    pruned: Mapping[str, int]
    num_legal: int
    rows: Rows | None = None


def verdicts(space: ServingSpace, found: ServingMetrics) -> Codes:
    """Return KEPT where latencies are as asked, else which is missed, the first of several."""
    codes = np.zeros(np.shape(found.ttft_s), dtype=np.int8)
    first, gap = space.target.seen(found)
    limits = ((E2EL, found.e2el_s, space.e2el_s), (TPOT, gap, space.tpot_s), (TTFT, first, space.ttft_s))
    for code, seconds, most in limits:
        if most is not None:
            codes[seconds > most] = code
    return codes


def overrun(space: ServingSpace, found: ServingMetrics) -> Array:
    """Return the latency over what is asked, the worst of several: KEPT is what is at most one, zero where none is."""
    first, gap = space.target.seen(found)
    limits = ((found.e2el_s, space.e2el_s), (gap, space.tpot_s), (first, space.ttft_s))
    parts = [
        np.where(seconds > most, np.maximum(seconds / most, _MORE), np.minimum(seconds / most, 1.0))
        for seconds, most in limits
        if most is not None
    ]
    # What is not a number is of no request.
    return np.asarray(np.nan_to_num(np.fmax.reduce(parts), nan=0.0, posinf=np.inf))


def missed(space: ServingSpace, ttft_s: Array, tpot_s: Array) -> Codes:
    """Return which latency even a request alone misses, KEPT where it is within both."""
    codes = np.zeros(np.broadcast_shapes(ttft_s.shape, tpot_s.shape), dtype=np.int8)
    if space.tpot_s is not None:
        codes[np.broadcast_to(tpot_s > space.tpot_s, codes.shape)] = TPOT
    if space.ttft_s is not None:
        codes[np.broadcast_to(ttft_s > space.ttft_s, codes.shape)] = TTFT
    return codes


def counted(codes: Codes) -> Mapping[str, int]:
    """Return how many candidates are not kept, by reason."""
    nums = np.bincount(codes.ravel(), minlength=len(REASONS))
    return {reason: int(n) for reason, n in zip(REASONS, nums, strict=True) if reason and n}
