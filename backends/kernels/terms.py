"""The answer of a kernel model: seconds, and the terms they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass

if TYPE_CHECKING:
    from ...ir.sizes.expr import Num

Array: TypeAlias = NDArray[np.float64]


class Resource(StrEnum):
    """What a term of a kernel's time waits for."""

    MATRIX = "matrix"  # matrix units, their tiles and waves
    VECTOR = "vector"  # vector and special units, instructions, blocks of threads
    INGEST = "ingest"  # what units take in from memory and cache, and on-chip memory feeds
    HBM = "hbm"
    L2 = "l2"
    LAUNCH = "launch"  # launches and fixed work
    HOST_LINK = "host_link"  # the link to the host, or its memory


# One meaning a name, in all models.
RESOURCES: Mapping[str, Resource] = MappingProxyType(
    {
        **dict.fromkeys(("tensor", "sustained"), Resource.MATRIX),
        **dict.fromkeys(("vector", "softmax", "special", "issue", "rows", "waves", "widen"), Resource.VECTOR),
        **dict.fromkeys(
            ("memory", "load", "store", "quantise", "weights", "scores", "row_passes", "token_passes"), Resource.HBM
        ),
        "ingest": Resource.INGEST,
        "split": Resource.L2,
        **dict.fromkeys(("overhead", "launch", "ramp"), Resource.LAUNCH),
        **dict.fromkeys(("copy", "latency"), Resource.HOST_LINK),
    }
)
# Terms that nothing hides: kernels of their own, and fixed work.
ADDED = frozenset(
    ("overhead", "launch", "ramp", "split", "quantise", "scores", "row_passes", "token_passes", "latency")
)


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Times of kernels; all arrays broadcast to the shape of `time_s`.

    `terms` are seconds by name in reading order, what `--explain` shows. How they make up the time is the model's own:
    some add, some hide behind others.
    """

    time_s: Array
    terms: Mapping[str, Array]

    def bound(self, *index: int) -> str:
        """Name the greatest term."""
        at = {name: float(np.broadcast_to(t, self.time_s.shape)[index]) for name, t in self.terms.items()}
        return max(at, key=lambda name: at[name])


def as_rows(numbers: Sequence[Num]) -> Array:
    """Put numbers under one another, one row each; as wide as the table of machines of which some are columns.

    >>> as_rows([1.0, np.array([2.0, 3.0])]).tolist()
    [[1.0, 1.0], [2.0, 3.0]]
    """
    wide = [n.size for n in numbers if isinstance(n, np.ndarray) and n.ndim]
    if not wide:
        return np.array(numbers, dtype=np.float64)[:, None]
    rows = np.empty((len(numbers), max(wide)))
    for row, number in zip(rows, numbers, strict=True):
        row[:] = number
    return rows
