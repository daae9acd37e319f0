"""Requests at random at a rate that changes: a day that rises and falls, or steps of a load test.

Gaps of a Poisson process of one request a second are stretched by the inverse of the requests that are expected up to
each moment. Source: Cinlar, Introduction to Stochastic Processes, 1975, section 4.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....ir.errors import UsageError
from ..batching.times import Array
from .sizes import MOST_REQUESTS, LengthSource
from .traffic import Traffic, random_streams

# Pieces of a cosine's period between which its rate counts as even.
_PIECES = 1440


def diurnal_traffic(
    peak_per_s: float, low_per_s: float, period_s: float, duration_s: float, sizes: LengthSource, seed: int = 0
) -> Traffic:
    """Return requests whose rate rises from the least to the peak and falls again, as a cosine, once a period.

    Expected up to t: mean t - (peak - low) / 2 x period / 2 pi x sin(2 pi t / period). UsageError for what is no rate.
    """
    if not 0 < low_per_s <= peak_per_s < math.inf:
        raise UsageError(f"diurnal:{peak_per_s:g},{low_per_s:g}: the peak, then the least, above 0 and not above it")
    _check_time("period", period_s)
    _check_time("duration", duration_s)
    times_s = np.linspace(0.0, duration_s, max(2, math.ceil(duration_s / period_s * _PIECES) + 1))
    swing = (peak_per_s - low_per_s) / 2.0
    wave = period_s / (2.0 * np.pi) * np.sin(2.0 * np.pi * times_s / period_s)
    return _drawn(times_s, (peak_per_s - swing) * times_s - swing * wave, sizes, seed)


def stepped_traffic(steps: Sequence[tuple[float, float]], sizes: LengthSource, seed: int = 0) -> Traffic:
    """Return requests that come at a rate for a time, then at the next; a rate may be 0.

    >>> from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
    >>> traffic = stepped_traffic([(1.0, 1000.0), (9.0, 1000.0)], LengthMix(Fixed(512), Fixed(128)))
    >>> bool(0.08 < (traffic.arrival_s < 1000.0).mean() < 0.12)
    True
    """
    for rate, length_s in steps:
        if not 0 <= rate < math.inf:
            raise UsageError(f"steps: a rate is 0 or more requests a second, not {rate:g}")
        _check_time("a step", length_s)
    lengths_s = np.array([length_s for _, length_s in steps])
    expected = np.array([rate for rate, _ in steps]) * lengths_s
    times_s, come = (np.concatenate([[0.0], np.cumsum(part)]) for part in (lengths_s, expected))
    return _drawn(times_s, come, sizes, seed)


def _drawn(times_s: Array, expected: Array, sizes: LengthSource, seed: int) -> Traffic:
    """Requests of which so many are expected up to each moment, between which their rate is even."""
    whole = float(expected[-1])
    if not 0 < whole <= MOST_REQUESTS:
        raise UsageError(f"{whole:,.6g} requests are expected in this time; allowed: above 0, up to {MOST_REQUESTS:,}")
    times, lengths = random_streams(seed)
    unit = np.cumsum(times.exponential(size=int(whole + 10.0 * math.sqrt(whole) + 10.0)))
    # Where nothing comes for a while, the sum stands still: the later moment of the two is right for what is behind.
    arrival_s = np.interp(unit[unit < whole], expected, times_s)
    if not len(arrival_s):
        raise UsageError(
            f"no request came in this time ({whole:.3g} expected): a longer time, a higher rate, or a seed"
        )
    return Traffic(arrival_s, sizes.draw(lengths, len(arrival_s)))


def _check_time(name: str, seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise UsageError(f"{name} must be above 0, and is {seconds:g} s")
