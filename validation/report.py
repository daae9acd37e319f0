"""Verdicts as text and JSON: each data set with its accuracy, the rows farthest off, and what was left out and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from ..ir.units import format_bytes
from ..report.columns import in_columns
from .memory import Judged, Labelled, LeftOut, Verdict
from .statistics import Accuracy, Confusion

Table = list[list[str]]


def summary_text(verdicts: Sequence[Verdict], limit: int, columns: int | None = None, in_order: bool = False) -> str:
    """Return the tables for a screen of so many columns, with at most `limit` rows listed, the worst first."""
    parts = [
        in_columns(table, columns)
        for table in (_accuracies(verdicts), _labels(verdicts), _rows(verdicts, limit, in_order), _reasons(verdicts))
        if len(table) > 1
    ]
    return "\n\n".join(parts or ["the table holds no rows"])


def summary_json(verdicts: Sequence[Verdict], limit: int) -> str:
    """Return the same as JSON: shares as fractions, memory in bytes."""
    return json.dumps(
        {
            "schema": "slipstick/validation/1",
            "datasets": {name: _dataset(of) for name, of in _by_dataset(verdicts).items()},
            "rows": [_record(v) for v in _worst_first(verdicts)[:limit]],
            "left_out": [
                {"id": v.row.id, "dataset": v.row.dataset, "reason": v.reason}
                for v in verdicts
                if isinstance(v, LeftOut)
            ],
        },
        indent=2,
    )


def _by_dataset(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for v in verdicts:
        found.setdefault(v.row.dataset, []).append(v)
    return found


def _dataset(verdicts: Sequence[Verdict]) -> dict[str, object]:
    errors = [v.error for v in verdicts if isinstance(v, Judged)]
    labels = [(v.fitted, v.fits) for v in verdicts if isinstance(v, Labelled)]
    found: dict[str, object] = {"left_out": sum(isinstance(v, LeftOut) for v in verdicts)}
    if errors:
        found["error"] = asdict(Accuracy.of(errors))
    if labels:
        confusion = Confusion.of(labels)
        found["labels"] = {**asdict(confusion), "accuracy": confusion.accuracy}
    return found


def _accuracies(verdicts: Sequence[Verdict]) -> Table:
    rows = [["data set", "quantity", "judged", "left out", "median", "p90", "worst", "bias"]]
    for name, of in _by_dataset(verdicts).items():
        judged = [v for v in of if isinstance(v, Judged)]
        out = str(sum(isinstance(v, LeftOut) for v in of))
        if not judged:
            rows.append([name, "-", "0", out, "-", "-", "-", "-"])
            continue
        a = Accuracy.of([v.error for v in judged])
        shown = [f"{a.median:.1%}", f"{a.p90:.1%}", f"{a.worst:.1%}", f"{a.bias:+.1%}"]
        rows.append([name, "/".join(sorted({v.quantity for v in judged})), str(a.num), out, *shown])
    return rows


def _labels(verdicts: Sequence[Verdict]) -> Table:
    rows = [
        [
            "data set",
            "labels",
            "right",
            "ran, said to fit",
            "ran, said not to",
            "failed, said not to",
            "failed, said to fit",
        ]
    ]
    for name, of in _by_dataset(verdicts).items():
        labels = [(v.fitted, v.fits) for v in of if isinstance(v, Labelled)]
        if labels:
            c = Confusion.of(labels)
            counts = (c.fits_right, c.fits_wrong, c.fails_right, c.fails_wrong)
            rows.append([name, str(c.num), f"{c.accuracy:.1%}", *map(str, counts)])
    return rows


def _rows(verdicts: Sequence[Verdict], limit: int, in_order: bool) -> Table:
    table = [["row", "quantity", "predicted", "measured", "error", "assumed"]]
    judged = [v for v in verdicts if isinstance(v, Judged)] if in_order else _worst_first(verdicts)
    for v in judged[:limit]:
        sizes = (format_bytes(v.predicted_bytes), format_bytes(v.measured_bytes))
        table.append([v.row.id, v.quantity, *sizes, f"{v.error:+.1%}", ", ".join(v.assumed)])
    return table


def _worst_first(verdicts: Sequence[Verdict]) -> list[Judged]:
    return sorted((v for v in verdicts if isinstance(v, Judged)), key=lambda v: -abs(v.error))


def _record(v: Judged) -> dict[str, object]:
    return {
        "id": v.row.id, "dataset": v.row.dataset, "quantity": v.quantity, "predicted_bytes": v.predicted_bytes,
        "measured_bytes": v.measured_bytes, "error": v.error, "assumed": list(v.assumed),
    }  # fmt: skip


def _reasons(verdicts: Sequence[Verdict]) -> Table:
    counts = Counter((v.row.dataset, v.reason) for v in verdicts if isinstance(v, LeftOut))
    return [["left out", "rows", "because"], *([name, str(n), why] for (name, why), n in counts.most_common())]
