"""Figures with where they are expected when they are measured."""

from __future__ import annotations

from ..metrics import METRICS, format_metric
from .bands import Band


def figure(name: str, value: float, band: Band | None) -> str:
    """Write a metric with its name and its interval: see `with_interval`."""
    return f"{METRICS[name].label} {with_interval(name, value, band)}"


def with_interval(name: str, value: float, band: Band | None) -> str:
    """Write a metric with where nine tenths of measurements are expected, their unit where it is another.

    >>> with_interval("step_time_s", 2.0, Band(-0.1, 0.0, 0.0, 0.1))
    '2 s (90 %: 1.81 to 2.21)'
    >>> with_interval("step_time_s", 0.99, Band(-0.1, 0.0, 0.0, 0.1))
    '990 ms (90 %: 896 ms to 1.09 s)'
    """
    text = format_metric(name, value)
    if band is None:
        return text
    interval = band.around(value)
    ends = [format_metric(name, end) for end in (interval.least, interval.most)]
    units = {one.partition(" ")[2] for one in (text, *ends)}
    shown = [end.partition(" ")[0] for end in ends] if len(units) == 1 else ends
    return f"{text} (90 %: {' to '.join(shown)})"
