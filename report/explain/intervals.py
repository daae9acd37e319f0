"""Intervals around the numbers of an answer as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from ...driver.metrics import METRICS, format_metric
from ...driver.uncertainty.answers import intervals
from ...driver.uncertainty.bands import Band
from ...driver.uncertainty.evidence import Evidence
from ...driver.uncertainty.figures import figure

# Between figures of one line.
_GAP = "   "


def figures_line(metrics: Mapping[str, float], bands: Mapping[str, Band], shown: Sequence[str]) -> str:
    """Return the figures that people ask for first, each with where nine tenths of measurements are expected."""
    return _GAP.join(figure(name, metrics[name], bands.get(name)) for name in shown if name in metrics)


def half_line(metrics: Mapping[str, float], bands: Mapping[str, Band], shown: Sequence[str]) -> str:
    """Say where half of all measurements are expected, of some metrics of an answer."""
    return _line("50 %", ("low", "high"), metrics, bands, shown)


def most_line(metrics: Mapping[str, float], bands: Mapping[str, Band], shown: Sequence[str]) -> str:
    """Say where nine tenths are expected."""
    return _line("90 %", ("least", "most"), metrics, bands, shown)


def _line(
    share: str, ends: Sequence[str], metrics: Mapping[str, float], bands: Mapping[str, Band], shown: Sequence[str]
) -> str:
    found = intervals({name: metrics[name] for name in shown if name in metrics}, bands)
    told = (
        f"{METRICS[name].label} {' .. '.join(format_metric(name, getattr(one, end)) for end in ends)}"
        for name, one in found.items()
    )
    return f"{share} interval: {', '.join(told)}"


def evidence_line(evidence: Evidence, band: Band) -> str:
    """Say what an answer rests on, and how many measurements its intervals were read from."""
    told = f"chip: {evidence.silicon}; software: {evidence.software}{evidence.outside}"
    return f"intervals: by {band.num_rows} measurements ({told})"


def shares_between(predicted: float, ratio: Band) -> str:
    """Say between which shares more, or less, nine tenths of measurements of a predicted ratio lie.

    >>> shares_between(0.9, Band(-0.03, -0.01, 0.01, 0.03))
    '-13 to -7.3 %'
    """
    interval = ratio.around(predicted)
    return f"{_share(interval.least - 1.0)} to {_share(interval.most - 1.0)} %"


def _share(share: float) -> str:
    percent = share * 100.0
    return f"{percent:+.0f}" if abs(percent) >= 10.0 else f"{percent:+.2g}"


def intervals_record(
    metrics: Mapping[str, float],
    bands: Mapping[str, Band],
    evidence: Evidence,
    ratios: Mapping[str, Band] = MappingProxyType({}),
) -> dict[str, object]:
    """Return what an answer rests on and the intervals of its metrics, in their units.

    `ratios` are the bands of the ratio of each metric to that of another plan on this machine by this software.
    """
    own = {
        name: {**asdict(one), "rows": bands[name].num_rows, "kind": bands[name].kind}
        for name, one in intervals(metrics, bands).items()
    }
    for name in [name for name in own if name in ratios]:
        own[name]["ratio"] = asdict(ratios[name].around(1.0))
    return {"evidence": {"chip": str(evidence.silicon), "software": str(evidence.software)}, "metrics": own}
