"""Intervals around the numbers of an answer as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from ...driver.metrics import METRICS, format_metric
from ...driver.uncertainty.answers import intervals
from ...driver.uncertainty.bands import Band
from ...driver.uncertainty.evidence import Evidence


def interval_lines(metrics: Mapping[str, float], bands: Mapping[str, Band], shown: Sequence[str]) -> Iterator[str]:
    """Yield where half of all measurements are expected, and where nine tenths, of some metrics of an answer."""
    found = intervals({name: metrics[name] for name in shown if name in metrics}, bands)
    for called, ends in (("50 %", ("low", "high")), ("90 %", ("least", "most"))):
        told = (
            f"{METRICS[name].label} {' .. '.join(format_metric(name, getattr(one, end)) for end in ends)}"
            for name, one in found.items()
        )
        yield f"{called} interval: {', '.join(told)}"


def evidence_line(evidence: Evidence, band: Band) -> str:
    """Say what an answer rests on, and how many measurements its intervals were read from."""
    told = f"chip: {evidence.silicon}; software: {evidence.software}"
    return f"intervals: by {band.num_rows} measurements ({told})"


def intervals_record(metrics: Mapping[str, float], bands: Mapping[str, Band], evidence: Evidence) -> dict[str, object]:
    """Return what an answer rests on and the intervals of its metrics, in their units."""
    return {
        "evidence": {"chip": str(evidence.silicon), "software": str(evidence.software)},
        "metrics": {
            name: {**asdict(one), "rows": bands[name].num_rows, "kind": bands[name].kind}
            for name, one in intervals(metrics, bands).items()
        },
    }
