"""A latency over many requests as mean, median, deviation and percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..batching.times import Array

_SHARES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a time is spread, in seconds; nothing is a number where there is none of it."""

    mean: float
    std: float
    median: float
    p90: float
    p95: float
    p99: float
    longest: float

    def as_bench(self, name: str) -> Mapping[str, float | None]:
        """Return it in milliseconds under the names of serving benchmarks; None where there is none."""
        of = {"mean": self.mean, "median": self.median, "std": self.std, "p90": self.p90, "p95": self.p95,
              "p99": self.p99}  # fmt: skip
        return {f"{part}_{name}_ms": None if np.isnan(s) else s * 1e3 for part, s in of.items()}


def spread(values_s: Array) -> Spread:
    """Return the spread of times that count alike; percentiles lie on lines between neighbours, as numpy's do.

    >>> spread(np.array([1.0, 2.0, 3.0, 4.0])).median
    2.5
    """
    if not len(values_s):
        return _of(np.full(7, np.nan))
    found = np.quantile(values_s, _SHARES)
    return _of(np.concatenate([[values_s.mean(), values_s.std()], found, [values_s.max()]]))


def weighted_spread(values_s: Array, num: Array) -> Spread:
    """Return the spread of times of which there are several each; a percentile is the least that so many do not pass.

    >>> weighted_spread(np.array([1.0, 5.0]), np.array([98.0, 2.0])).p99
    5.0
    """
    total = float(num.sum())
    if not total:
        return _of(np.full(7, np.nan))
    mean = float(values_s @ num) / total
    std = np.sqrt(float(((values_s - mean) ** 2) @ num) / total)
    order = np.argsort(values_s)
    below = np.cumsum(num[order])
    at = np.minimum(np.searchsorted(below, np.array(_SHARES) * total), len(order) - 1)
    return _of(np.concatenate([[mean, std], values_s[order[at]], [values_s.max()]]))


def _of(values: Array) -> Spread:
    return Spread(*(float(v) for v in values))
