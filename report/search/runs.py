"""Runs of searches for people and programs: a list of them, and one of them in full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ...driver.metrics import METRICS, format_metric
from ...explore.runs.summary import Summary
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes
from ..columns import in_columns

RUNS = "slipstick/runs/1"
RUN = "slipstick/run/1"


def runs_table(found: Sequence[Summary], width: int | None = None) -> str:
    """Return runs as a table, a line each; below it, why some cannot be read."""
    heading = ["run", "model", "state", "plans", "best", "size", "tool version"]
    rows = [
        [
            s.name,
            s.run.model or "-",
            _state(s),
            _plans(s),
            _best(s),
            format_bytes(s.size_bytes),
            s.run.tool_version or "-",
        ]
        for s in found
    ]
    return "\n".join([in_columns([heading, *rows], width), *(s.wrong for s in found if s.wrong is not None)])


def runs_json(found: Sequence[Summary]) -> str:
    """Return runs as a JSON document."""
    return json_text({"schema": RUNS, "runs": [_record(s) for s in found]}, indent=2)


def run_json(summary: Summary) -> str:
    """Return one run as a JSON document, with its space and the range of each column."""
    counts = summary.counts
    ranges = {name: {"least": _plain(least), "most": _plain(most)} for name, (least, most) in counts.ranges.items()}
    more = {
        "digest": summary.run.digest,
        "columns": list(summary.run.columns),
        "words": {name: list(words) for name, words in summary.run.words.items()},
        "pruned": dict(counts.pruned),
        "crashed": list(counts.crashed),
        "ranges": ranges,
        "space": summary.run.text,
    }
    return json_text({"schema": RUN, **_record(summary), **more}, indent=2)


def run_text(summary: Summary, width: int | None = None) -> str:
    """Return one run for people: what was searched, what became of the candidates, between what its columns lie."""
    run = summary.run
    rows = [
        ["run", summary.name],
        ["model", run.model],
        ["command", run.command],
        ["state", _state(summary)],
        ["objective", ", ".join(run.objectives)],
        ["tool version", run.tool_version],
        ["ledger", f"{summary.path}, {format_bytes(summary.size_bytes)}"],
    ]
    sections = [in_columns([row for row in rows if row[1]], width), _counts(summary, width)]
    ranges = list(_each_range(summary))
    if ranges:
        sections.append(in_columns([["column", "least", "most"], *ranges], width))
    return "\n\n".join([*sections, "space\n" + "\n".join(f"  {line}" for line in run.text.rstrip().split("\n"))])


def _record(summary: Summary) -> Mapping[str, object]:
    run, counts, best = summary.run, summary.counts, summary.best
    if summary.wrong is not None:
        return {
            "name": summary.name,
            "state": summary.state,
            "path": str(summary.path),
            "size_bytes": summary.size_bytes,
            "error": summary.wrong,
        }
    return {
        "name": summary.name,
        "model": run.model,
        "state": summary.state,
        "path": str(summary.path),
        "size_bytes": summary.size_bytes,
        "tool_version": run.tool_version,
        "command": run.command,
        "objectives": list(run.objectives),
        "best": None if best is None else {"metric": best[0], "value": _plain(best[1])},
        "num_blocks": run.num_blocks,
        "num_blocks_done": counts.num_done,
        "num_candidates": counts.num_candidates,
        "num_legal": counts.num_legal,
        "num_pruned": sum(counts.pruned.values()),
        "num_crashed": len(counts.crashed),
        "num_kept": counts.num_kept,
    }


def _plain(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def _state(summary: Summary) -> str:
    if summary.wrong is not None or summary.is_done:
        return summary.state
    who = "" if summary.running is None else f" ({summary.running})"
    return f"{summary.state}{who}: {summary.counts.num_done:,} of {summary.run.num_blocks:,} blocks"


def _plans(summary: Summary) -> str:
    return "-" if summary.wrong is not None else f"{summary.counts.num_kept:,}"


def _best(summary: Summary) -> str:
    if summary.best is None:
        return "-"
    name, value = summary.best
    return f"{METRICS[name].label if name in METRICS else name} {_shown(name, value)}"


def _counts(summary: Summary, width: int | None) -> str:
    """What became of the candidates; each reason and each crash has its line."""
    counts = summary.counts
    rows = [
        ["candidates", f"{counts.num_candidates:,}", "" if summary.is_done else "in the blocks that are done"],
        ["legal", f"{counts.num_legal:,}", "by divisibility"],
        *(["pruned", f"{num:,}", reason] for reason, num in counts.pruned.items()),
        *(["crashed", "1", line] for line in counts.crashed),
        ["kept", f"{counts.num_kept:,}", "plans"],
    ]
    digits = max(len(row[1]) for row in rows)
    return in_columns([[what, number.rjust(digits), why] for what, number, why in rows], width)


def _each_range(summary: Summary) -> Iterator[list[str]]:
    """Columns of numbers that differ between plans."""
    for name, (least, most) in summary.counts.ranges.items():
        if name not in summary.run.words and least < most:
            yield [name, _shown(name, least), _shown(name, most)]


def _shown(name: str, value: float) -> str:
    return format_metric(name, value) if name in METRICS else f"{value:,.6g}"
