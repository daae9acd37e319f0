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
    rows = np.flatnonzero(np.isfinite(points).all(axis=1))
    found = np.zeros(len(points), dtype=bool)
    if rows.size:
        distinct, of_row = np.unique(points[rows], axis=0, return_inverse=True)
        best = _front(distinct) if len(objectives) > 2 else _staircase(distinct)
        found[rows] = best[of_row.reshape(-1)]
    return found


def _staircase(points: Array) -> NDArray[np.bool_]:
    """Of distinct points in order of their first number: each whose last is below those of all before it."""
    last = points[:, -1]
    before = np.concatenate([[np.inf], np.minimum.accumulate(last)[:-1]])
    return np.asarray(last < before)


def _front(points: Array) -> NDArray[np.bool_]:
    """By the sum of ranks: what beats a point comes before it, so each survivor sweeps away what it beats once."""
    found = np.zeros(len(points), dtype=bool)
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in points.T], axis=1)
    left = np.argsort(ranks.sum(axis=1), kind="stable")
    while left.size:
        best, left = left[0], left[1:]
        found[best] = True
        left = left[(points[left] < points[best]).any(axis=1)]
    return found
