"""Weighted sums of the rows of an array, many at once, each added up in one order whatever the width of the array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..records import dataclass

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RowSums:
    """Sums compiled for speed: the longest stand first, so that all that have a next row to add lie side by side.

    A matrix product may round differently for another number of columns; this does not. Equal sums are added up once.

    Attributes:
        place: where each sum stands.
        steps: for each place in the sums, in order, the weights as a column and the rows that the first sums add.
        num_distinct: how many different sums there are.
    """

    place: Index
    steps: tuple[tuple[Array, Index], ...]
    num_distinct: int

    @classmethod
    def of(cls, sums: Sequence[Mapping[int, float]], which: Sequence[int] | None = None) -> RowSums:
        """Compile sums, each given as row -> weight; rows are added in ascending order.

        `which` are the places among `sums` of those that are asked for, where some are asked for more than once.

        >>> found = RowSums.of([{0: 1.0, 2: 2.0}, {}, {1: 3.0}])
        >>> found.of_rows(np.array([[1.0], [10.0], [100.0]])).tolist()
        [[201.0], [0.0], [30.0]]
        """
        found: dict[tuple[tuple[int, float], ...], int] = {}
        number = np.array([found.setdefault(tuple(sorted(s.items())), len(found)) for s in sums], dtype=np.intp)
        ordered = sorted(found, key=lambda terms: -len(terms))
        place = np.empty(len(ordered), dtype=np.intp)
        place[[found[terms] for terms in ordered]] = np.arange(len(ordered))
        longest = max(map(len, ordered), default=0)
        steps = (_step([terms for terms in ordered if len(terms) > j], j) for j in range(longest))
        return cls(place[number if which is None else number[list(which)]], tuple(steps), len(ordered))

    def among(self, rows: Index) -> RowSums:
        """Return the same sums of rows that are found elsewhere, each at its place in `rows`; equal ones may share one.

        >>> RowSums.of([{0: 1.0, 1: 2.0}]).among(np.array([0, 0])).of_rows(np.array([[5.0]])).tolist()
        [[15.0]]
        """
        return RowSums(self.place, tuple((weights, rows[of]) for weights, of in self.steps), self.num_distinct)

    def of_rows(self, values: Array) -> Array:
        """Return the sums (sums x columns) of the rows of an array."""
        out = np.zeros((self.num_distinct, values.shape[1]))
        for weights, rows in self.steps:
            part = values[rows]
            part *= weights
            out[: len(rows)] += part
        return out[self.place]


def _step(sums: Sequence[Sequence[tuple[int, float]]], place: int) -> tuple[Array, Index]:
    """What sums add at one place, which all of them have."""
    rows, weights = zip(*(s[place] for s in sums), strict=True)
    return np.array(weights, dtype=np.float64)[:, None], np.array(rows, dtype=np.intp)
