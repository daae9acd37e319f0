"""A measured all-reduce in place of the model, for groups of as many neighbouring ranks as it was measured over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...machine.software.stack import MeasuredAllReduce

Array = NDArray[np.float64]
# What a collective takes of an all-reduce of the same vector, which gathers what it has scattered.
_PARTS: Mapping[str, float] = MappingProxyType({"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5})


def with_measured(
    kind: str, time_s: Array, num_bytes: Array, size: Array, stride: Array, measured: Sequence[MeasuredAllReduce]
) -> Array:
    """Replace modelled times by measured ones where there are any; the rest stay.

    A figure is taken for groups of exactly as many ranks that are neighbours: what was measured over a whole job says
    nothing of groups inside of it. Between sizes the time is interpolated, in logarithms; beyond them it goes on in
    proportion to the bytes above the largest, and stays as it is below the smallest.
    """
    if kind not in _PARTS:
        return time_s
    found = time_s
    for ranks in dict.fromkeys(m.ranks for m in measured):
        table = [m for m in measured if m.ranks == ranks]
        here = (size == ranks) & (stride == 1.0) & (num_bytes > 0.0)
        sizes, times = np.array([m.num_bytes for m in table]), np.array([m.time_s for m in table])
        inside = np.exp(np.interp(np.log(np.maximum(num_bytes, 1.0)), np.log(sizes), np.log(times)))
        found = np.where(here, _PARTS[kind] * np.asarray(inside * np.maximum(num_bytes / sizes[-1], 1.0)), found)
    return found
