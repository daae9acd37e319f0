"""Which rows of a table no other row beats in everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pareto(objectives: Sequence[Array]) -> NDArray[np.bool_]:
    """Return the rows of which no other is as good in every objective and better in one; less is better.

    Rows with a nan or an infinity are never among them. Equal rows all are.

    >>> pareto([np.array([1.0, 2.0, 3.0, 2.0]), np.array([3.0, 2.0, 1.0, 3.0])]).tolist()
    [True, True, True, False]
    """
    points = np.stack(objectives, axis=1)
    found = np.zeros(len(points), dtype=bool)
    rows = np.flatnonzero(np.isfinite(points).all(axis=1))
    # By the sum of ranks: what beats a row comes before it, so each survivor sweeps away what it beats once.
    left = rows[np.lexsort((*points[rows].T[::-1], _ranks(points[rows]).sum(axis=1)))]
    while left.size:
        best, left = left[0], left[1:]
        found[best] = True
        alike = (points[left] == points[best]).all(axis=1)
        left = left[(points[left] < points[best]).any(axis=1) | alike]
    return found


def _ranks(points: Array) -> NDArray[np.intp]:
    return np.stack([np.unique(column, return_inverse=True)[1] for column in points.T], axis=1)
