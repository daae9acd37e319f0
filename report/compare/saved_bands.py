"""Bands of the metrics of a saved report, and of the ratio of two reports."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...driver.uncertainty.bands import Band
from ...driver.uncertainty.evidence import are_sisters

_ENDS = ("least", "low", "high", "most")
# Inputs by which two answers have the same software: the stack of their kernels, and the engine of servers.
_SOFTWARE = ("system.stack", "engine.name")


def saved_bands(tree: Mapping[str, object]) -> tuple[Mapping[str, Band], Mapping[str, Band]]:
    """Return the bands of metrics, and of their ratios to other plans on the machine, from the intervals of a report.

    Both are empty where the report has none, as one of an older version.
    """
    metrics, intervals = (_part(tree, name) for name in ("metrics", "intervals"))
    of = {name: _part(_part(intervals, "metrics"), name) for name in _part(intervals, "metrics")}
    own = {name: _band(metrics.get(name), ends) for name, ends in of.items()}
    ratios = {name: _band(1.0, _part(ends, "ratio")) for name, ends in of.items()}
    return _known(own), _known(ratios)


def are_paired(inputs: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether two reports share their errors: the same software on one chip, or on chips of one design."""
    chips = (of.get("system.chip", "") for of in (inputs, others))
    return are_sisters(*chips) and all(inputs.get(name) == others.get(name) for name in _SOFTWARE)


def _known(bands: Mapping[str, Band | None]) -> Mapping[str, Band]:
    return {name: band for name, band in bands.items() if band is not None}


def _part(tree: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = tree.get(name)
    return part if isinstance(part, dict) else {}


def _band(value: object, interval: Mapping[str, object]) -> Band | None:
    """The band of a value from its interval; None where either is no positive number, or the order is not theirs."""
    numbers = [interval.get(end) for end in _ENDS]
    point, *ends = (n if isinstance(n, int | float) and 0 < n < math.inf else None for n in (value, *numbers))
    if point is None or None in ends:
        return None
    least, low, high, most = (math.log(end / point) for end in ends if end is not None)
    # Ends that were printed round, and those of a version whose bands need not hold the value.
    least, low, high, most = min(least, low, 0.0), min(low, 0.0), max(high, 0.0), max(high, most, 0.0)
    return Band(least, low, high, most)
