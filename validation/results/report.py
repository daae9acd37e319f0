"""Outcomes as text, JSON and CSV: accuracy by data set and kind, the rows farthest off, what was left out and why."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

import numpy as np

from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_si, format_time, format_usd
from ...report.columns import in_columns
from .figures import Figures, by_dataset, by_kernel, by_kind, by_range, farther_than, worst_first
from .outcomes import Outcome, Part
from .statistics import Accuracy

# How often measurements lie in ranges that were predicted for them.


@dataclass(frozen=True, slots=True)
class IntervalShares:
    """Shares of the measurements that lie inside, below and above; `width` is the median of high over low."""

    num: int
    inside: float
    below: float
    above: float
    width: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> IntervalShares:
        """Count the outcomes that are ranges, one of them at least."""
        ends = [(o.low, o.high, o.measured) for o in outcomes if o.low is not None and o.high is not None]
        low, high, measured = np.asarray(ends, dtype=np.float64).T
        below, above = float((measured < low).mean()), float((measured > high).mean())
        return cls(len(ends), 1.0 - below - above, below, above, float(np.median(high / low)))

    @classmethod
    def by_part(cls, outcomes: Sequence[Outcome]) -> Iterator[tuple[Part, IntervalShares]]:
        """Yield what judges and what was fitted, where there is any."""
        for part in (Part.JUDGED, Part.FIT):
            some = [o for o in outcomes if o.part is part]
            if some:
                yield part, cls.of(some)


Lines = list[list[str]]
_FIGURES = ["rows", "n", "median", "mean", "p75", "p90", "worst", "bias"]
# Of each unit: how a value is shown, what stands behind the names of its columns, and one base unit in that.
_FORMATS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "s": format_time,
        "B": format_bytes,
        "W": lambda power: format_si(power, "W"),
        "USD": format_usd,
        "/s": lambda rate: f"{rate:,.4g}/s",
    }
)
_NAMES = MappingProxyType({"s": "s", "B": "bytes", "W": "w", "USD": "usd", "/s": "per_s"})
_COLUMNS = MappingProxyType(
    {"s": ("us", 1e6), "B": ("bytes", 1.0), "W": ("w", 1.0), "USD": ("usd", 1.0), "/s": ("per_s", 1.0)}
)
_CELLS = [
    "id", "dataset", "part", "predicted_us", "measured_us", "error", "reason", "table", "system", "library", "kind",
    "group", "predicted_bytes", "measured_bytes", "predicted_per_s", "measured_per_s", "low_us", "high_us",
    "predicted_w", "measured_w", "predicted_usd", "measured_usd",
]  # fmt: skip


def summary_text(
    outcomes: Sequence[Outcome], limit: int, columns: int | None = None, beyond: float | None = None
) -> str:
    """Return the tables for a screen of so many columns.

    With the `limit` rows that are farthest off, and those that are off by more than `beyond`.
    """
    left = {(o.row.dataset, o.row.id): o for o in outcomes if o.part in (Part.EXCLUDED, Part.SKIPPED)}
    counts = Counter((o.row.dataset, o.part, o.reason) for o in left.values())
    lines = [[name, part.value, str(n), why] for (name, part, why), n in counts.most_common()]
    worst = worst_first(outcomes)[:limit]
    tables = (
        _datasets(outcomes),
        _kinds(outcomes),
        _ranges(outcomes),
        _labels(outcomes),
        _listed("row", worst, [o.cause or o.reason for o in worst]),
        _beyond(outcomes, beyond),
        _assumed(outcomes),
        [["data set", "left out", "rows", "because"], *lines],
    )
    return "\n\n".join(in_columns(t, columns) for t in tables if len(t) > 1) or "no rows"


def summary_json(outcomes: Sequence[Outcome], limit: int, beyond: float | None = None) -> str:
    """Return the same as JSON: errors as fractions, times in seconds, memory in bytes."""
    datasets = {name: {**_record(Figures.of(of)), "by": _kernels(of)} for name, of in by_dataset(outcomes).items()}
    return json_text(
        {
            "schema": "slipstick/validation/2",
            "datasets": datasets,
            "overall": _record(Figures.of(outcomes)),
            "kinds": {" ".join(key): _record(Figures.of(of)) for key, of in by_kind(outcomes).items()},
            "ranges": [_range(key, of) for key, of in by_range(outcomes).items()],
            "rows": [_row(o) for o in worst_first(outcomes)[:limit]],
            "beyond": [_row(o) for o in farther_than(outcomes, beyond)],
            "assumed": [{"dataset": name, "rows": int(n), "assumed": said} for name, n, said in _assumed(outcomes)[1:]],
            "left_out": [
                {"id": o.row.id, "dataset": o.row.dataset, "part": o.part.value, "reason": o.reason}
                for o in outcomes
                if o.part in (Part.EXCLUDED, Part.SKIPPED)
            ],
        },
        indent=2,
    )


def rows_csv(outcomes: Sequence[Outcome]) -> str:
    """Return one line a row: what was predicted and measured, or why not."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CELLS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_cells(o) for o in outcomes)
    return text.getvalue()


def _datasets(outcomes: Sequence[Outcome]) -> Lines:
    lines = [["data set", "system", "kind", *_FIGURES]]
    for (dataset, system, kind), of in by_kernel(outcomes).items():
        lines += _under([dataset, system, kind], Figures.of(of))
    return lines


def _kinds(outcomes: Sequence[Outcome]) -> Lines:
    """Gather kinds over data sets, where there are several."""
    lines = [["table", "kind", *_FIGURES]]
    if len(by_kernel(outcomes)) < 2:
        return lines
    for (table, kind), of in by_kind(outcomes).items():
        lines += _under([table, kind], Figures.of(of))
    return [*lines, *_under(["all", ""], Figures.of(outcomes))]


def _under(names: list[str], figures: Figures) -> Lines:
    """One line a part; the names stand before the first."""
    found: Lines = []
    for part, accuracy in figures.lines():
        found.append([*(names if not found else [""] * len(names)), part, *_shown(accuracy)])
    return found


def _shown(a: Accuracy) -> list[str]:
    return [str(a.num), *(f"{x:.1%}" for x in (a.median, a.mean, a.p75, a.p90, a.worst)), f"{a.bias:+.1%}"]


def _ranges(outcomes: Sequence[Outcome]) -> Lines:
    """Of what is predicted as a range, how often the measurement lies in it."""
    lines = [["data set", "system", "ranges", "rows", "n", "inside", "below", "above", "width"]]
    for (dataset, system, kind), of in by_range(outcomes).items():
        names = [dataset, system, kind]
        for part, found in IntervalShares.by_part(of):
            shares = [f"{found.inside:.1%}", f"{found.below:.1%}", f"{found.above:.1%}", f"{found.width:.1f} x"]
            lines.append([*names, part.value, str(found.num), *shares])
            names = ["", "", ""]
    return lines + _all_ranges(outcomes) if len(lines) > 2 else lines


def _all_ranges(outcomes: Sequence[Outcome]) -> Lines:
    ranges = [o for of in by_range(outcomes).values() for o in of]
    shares = IntervalShares.by_part(ranges)
    return [["all", "", "", part.value, str(found.num), f"{found.inside:.1%}", f"{found.below:.1%}",
             f"{found.above:.1%}", f"{found.width:.1f} x"] for part, found in shares]  # fmt: skip


def _labels(outcomes: Sequence[Outcome]) -> Lines:
    lines = [["data set", "labels", "right", "precision", "recall", "ran, said to fit", "ran, said not to",
              "failed, said not to", "failed, said to fit"]]  # fmt: skip
    for name, of in by_dataset(outcomes).items():
        c = Figures.of(of).labels
        if c is not None:
            counts = (c.fits_right, c.fits_wrong, c.fails_right, c.fails_wrong)
            shares = (f"{x:.1%}" for x in (c.accuracy, c.precision, c.recall))
            lines.append([name, str(c.num), *shares, *map(str, counts)])
    return lines


def _beyond(outcomes: Sequence[Outcome], beyond: float | None) -> Lines:
    far = farther_than(outcomes, beyond)
    return _listed("" if beyond is None else f"off by more than {beyond:.0%}", far, [o.cause or "open" for o in far])


def _listed(title: str, outcomes: Sequence[Outcome], because: Sequence[str]) -> Lines:
    lines = [[title, "kind", "rows", "predicted", "measured", "error", "because"]]
    for o, why in zip(outcomes, because, strict=True):
        shown = _FORMATS[o.unit]
        values = (shown(o.predicted), shown(o.measured), f"{o.error:+.1%}")
        lines.append([o.row.id, o.shown_kind, o.part.value, *values, why])
    return lines


def _assumed(outcomes: Sequence[Outcome]) -> Lines:
    """Count what had to be assumed, setting by setting."""
    used = (o for o in outcomes if o.part in (Part.FIT, Part.JUDGED) and (o.has_error or o.is_range))
    rows = {(o.row.dataset, o.row.id): o.reason for o in used}
    counts = Counter((dataset, said) for (dataset, _), reason in rows.items() for said in reason.split("; ") if said)
    return [["data set", "rows", "assumed"], *([name, str(n), said] for (name, said), n in counts.items())]


def _kernels(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    return [
        {"system": system, "kind": kind, **_record(Figures.of(of))}
        for (_, system, kind), of in by_kernel(outcomes).items()
    ]


def _record(figures: Figures) -> dict[str, object]:
    found: dict[str, object] = {
        "n": 0 if figures.whole is None else figures.whole.num,
        "skipped": figures.num_skipped,
        "excluded": figures.num_excluded,
        **_errors(figures.whole),
        **{part.value: {"n": of.num, **_errors(of)} for part, of in figures.parts.items()},
    }
    if figures.labels is not None:
        # Shares of labels; None where there is nothing to take a share of.
        given = {
            "accuracy": figures.labels.accuracy,
            "precision": figures.labels.precision,
            "recall": figures.labels.recall,
        }
        found["labels"] = {
            **asdict(figures.labels),
            **{name: None if math.isnan(share) else share for name, share in given.items()},
        }
    return found


def _range(key: Sequence[str], outcomes: Sequence[Outcome]) -> dict[str, object]:
    named = dict(zip(("dataset", "system", "kind"), key, strict=True))
    return {**named, **{part.value: asdict(found) for part, found in IntervalShares.by_part(outcomes)}}


def _errors(a: Accuracy | None) -> dict[str, float | None]:
    if a is None:
        return dict.fromkeys(("median_ape", "mean_ape", "p75_ape", "p90_ape", "worst_ape", "bias"))
    return {
        "median_ape": a.median,
        "mean_ape": a.mean,
        "p75_ape": a.p75,
        "p90_ape": a.p90,
        "worst_ape": a.worst,
        "bias": a.bias,
    }


def _row(o: Outcome) -> dict[str, object]:
    unit = _NAMES[o.unit]
    return {
        "id": o.row.id,
        "dataset": o.row.dataset,
        "kind": o.kind,
        "part": o.part.value,
        f"predicted_{unit}": o.predicted,
        f"measured_{unit}": o.measured,
        "error": o.error,
        "reason": o.reason,
        "cause": o.cause,
    }


def _cells(o: Outcome) -> dict[str, str]:
    unit, scale = _COLUMNS[o.unit]
    cells = {
        "id": o.row.id,
        "dataset": o.row.dataset,
        "part": o.part.value,
        "reason": o.reason or _label(o),
        "table": o.table,
        "system": o.system,
        "library": o.library,
        "kind": o.kind,
        "group": o.group,
    }
    if o.part is not Part.SKIPPED:
        cells[f"predicted_{unit}"] = f"{o.predicted * scale:.6g}"
    if o.has_error or o.is_range:
        cells |= {f"measured_{unit}": f"{o.measured * scale:.6g}", "error": f"{o.error:.6f}"}
    if o.low is not None and o.high is not None:
        cells |= {f"low_{unit}": f"{o.low * scale:.6g}", f"high_{unit}": f"{o.high * scale:.6g}"}
    return cells


def _label(o: Outcome) -> str:
    if o.label is None:
        return ""
    return f"{'ran' if o.label.ran else 'failed'}, said {'to fit' if o.label.fits else 'not to fit'}"
