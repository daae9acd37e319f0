"""Load over a day: so many requests a second for so much of the time, from a number, a curve or a trace."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from ....ir.errors import UsageError
from ....ir.records import dataclass
from .traffic import Traffic

# Parts of a day.
_PARTS = 24
_CURVE = re.compile(r"\s*diurnal:([^,]+),(?:low=)?([^,]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Day:
    """Rates of requests, each for a share of the time.

    Attributes:
        name: as people write it.
        rates_per_s: requests a second, more than none.
        shares: of the time; they add up to one.

    >>> day = diurnal(500.0, 100.0)
    >>> round(day.peak_per_s), round(day.mean_per_s), len(day.rates_per_s)
    (500, 300, 13)
    """

    name: str
    rates_per_s: tuple[float, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        """UsageError for rates that are none."""
        wrong = [rate for rate in self.rates_per_s if not 0 < rate < math.inf]
        if wrong or not self.rates_per_s:
            raise UsageError(f"{self.name}: requests a second, more than 0, and not {wrong[0] if wrong else 'none':g}")

    @property
    def peak_per_s(self) -> float:
        """The most requests a second: what a fleet is made for."""
        return max(self.rates_per_s)

    @property
    def mean_per_s(self) -> float:
        """Requests a second over all of the time."""
        return sum(rate * share for rate, share in self.parts())

    @property
    def is_flat(self) -> bool:
        """Whether the rate is always the same."""
        return len(self.rates_per_s) == 1

    def parts(self) -> Iterator[tuple[float, float]]:
        """Yield each rate with its share of the time."""
        return zip(self.rates_per_s, self.shares, strict=True)


def flat(rate_per_s: float) -> Day:
    """Return the same rate at all times."""
    return Day(f"{rate_per_s:g} requests/s", (rate_per_s,), (1.0,))


def diurnal(peak_per_s: float, low_per_s: float) -> Day:
    """Return a day that rises and falls as a cosine between two rates, hour by hour."""
    if not 0 < low_per_s <= peak_per_s:
        raise UsageError(f"diurnal:{peak_per_s:g},{low_per_s:g}: the peak, then the least, above 0 and not above it")
    waves = (1.0 + np.cos(2.0 * np.pi * np.arange(_PARTS) / _PARTS)) / 2.0
    name = f"{low_per_s:g} to {peak_per_s:g} requests/s over a day"
    return _day(name, low_per_s + (peak_per_s - low_per_s) * waves)


def of_trace(name: str, traffic: Traffic) -> Day:
    """Return the rates of the equal parts of a trace's time; those in which nothing comes count as a request each."""
    span = float(traffic.arrival_s[-1] - traffic.arrival_s[0])
    if traffic.clients or not span > 0:
        raise UsageError(f"{name}: a trace whose requests come over some time; closed loops and bursts have no rate")
    counts, _ = np.histogram(traffic.arrival_s, bins=_PARTS)
    return _day(name, np.maximum(counts, 1) / (span / _PARTS))


def curve_of(text: str) -> tuple[float, float] | None:
    """Read `diurnal:PEAK,LOW`; None for what is no such curve.

    >>> curve_of("diurnal:500,100"), curve_of("500")
    ((500.0, 100.0), None)
    """
    match = _CURVE.fullmatch(text)
    try:
        return None if match is None else (float(match[1]), float(match[2]))
    except ValueError:
        raise UsageError(f"{text[:40]}: two numbers of requests a second, as in diurnal:500,100") from None


def _day(name: str, rates: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Day:
    different, times = np.unique(np.round(rates, 9), return_counts=True)
    return Day(name, tuple(different.tolist()), tuple((times / times.sum()).tolist()))
