"""Sums of tables of times, exact: on all points of both, as lines between points add up to lines."""

from __future__ import annotations

import numpy as np

from .batching.times import Array, Curve, Surface


def sum_curves(first: Curve, second: Curve, share: float = 1.0) -> Curve:
    """Return `first + share x second`.

    >>> rising = Curve(np.array([0.0, 4.0]), np.array([0.0, 4.0]))
    >>> falling = Curve(np.array([0.0, 1.0]), np.array([9.0, 8.0]))
    >>> sum_curves(rising, falling, 2.0)(np.array([0.5, 2.0]))
    array([17.5, 16. ])
    """
    at = np.union1d(first.at, second.at)
    return Curve(at, first(at) + share * second(at))


def sum_surfaces(first: Surface, second: Surface, share: float = 1.0) -> Surface:
    """Return `first + share x second`."""
    rows, columns = np.union1d(first.rows, second.rows), np.union1d(first.columns, second.columns)
    row, column = rows[:, None], columns[None, :]
    return Surface(rows, columns, first(row, column) + share * second(row, column))


def scaled_curve(curve: Curve, factor: float, wider: float = 1.0) -> Curve:
    """Return `factor x curve(wider x size)` as a curve over the size."""
    return Curve(curve.at / wider, factor * curve.value)


def scaled_surface(surface: Surface, factor: float) -> Surface:
    """Return `factor` times the surface."""
    value: Array = factor * surface.value
    return Surface(surface.rows, surface.columns, value)
