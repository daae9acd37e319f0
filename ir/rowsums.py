"""Weighted sums of the rows of an array, many at once, each added up in one order whatever the width of the array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RowSums:
    """Sums compiled for speed: first the first row of every sum, then the second of those that have one, ...

    A matrix product may round differently for another number of columns; this does not.

    Attributes:
        num: how many sums there are.
        steps: for each place in the sums: which of them have it, their weights as a column, and the row that they add.
    """

    num: int
    steps: tuple[tuple[Index | slice, Array, Index], ...]

    @classmethod
    def of(cls, sums: Sequence[Mapping[int, float]]) -> RowSums:
        """Compile sums, each given as row -> weight; rows are added in ascending order.

        >>> found = RowSums.of([{0: 1.0, 2: 2.0}, {}, {1: 3.0}])
        >>> found.of_rows(np.array([[1.0], [10.0], [100.0]])).tolist()
        [[201.0], [0.0], [30.0]]
        """
        ordered = [sorted(s.items()) for s in sums]
        longest = max(map(len, ordered), default=0)
        steps = [_step(ordered, place) for place in range(longest)]
        return cls(len(sums), tuple(steps))

    def of_rows(self, values: Array) -> Array:
        """Return the sums (sums x columns) of the rows of an array."""
        out = np.zeros((self.num, values.shape[1]))
        for where, weights, rows in self.steps:
            out[where] += weights * values[rows]
        return out


def _step(sums: Sequence[Sequence[tuple[int, float]]], place: int) -> tuple[Index | slice, Array, Index]:
    """What every sum that is long enough adds at one place."""
    longer = [k for k, s in enumerate(sums) if len(s) > place]
    rows = np.array([sums[k][place][0] for k in longer], dtype=np.intp)
    weights = np.array([[sums[k][place][1]] for k in longer])
    return (slice(None) if len(longer) == len(sums) else np.array(longer, dtype=np.intp)), weights, rows
