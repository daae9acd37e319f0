"""A JSON report on disk into what can be compared: metrics, the parts that they are made of, and the inputs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ...driver.metrics import METRICS
from ...driver.uncertainty.bands import Band
from ...ir.errors import ParseError, UsageError
from ...ir.records import dataclass
from ...ir.text.formats import read_json
from ...ir.text.untrusted import read_stdin, read_text
from .saved_bands import saved_bands

REPORT = "slipstick/report/1"
VALIDATION = "slipstick/validation/2"
# Of a summary of `slipstick validate`, what is compared; all but the counts are fractions.
FIGURES = ("median_ape", "mean_ape", "p90_ape", "worst_ape", "bias")
COUNTS = ("n", "skipped", "excluded")
_HOW = "write one with `slipstick estimate ... --format json > FILE`"


@dataclass(frozen=True, slots=True)
class MetricParts:
    """What a metric is made of.

    Attributes:
        name: the section of the report.
        title: what people call it.
        of: the metric.
        unit: of the values.
        values: by part.
        add_up: whether they add up to the metric.
    """

    name: str
    title: str
    of: str
    unit: str
    values: Mapping[str, float]
    add_up: bool = True


@dataclass(frozen=True, slots=True)
class Saved:
    """One report as it was written: inputs are flat, by path such as `plan.tp`; `nodes` as the file has them.

    `bands` are those of its metrics, `ratio_bands` those of ratios to plans on the same machine by the same software;
    both are empty where an older version wrote none.
    """

    path: str
    schema: str
    inputs: Mapping[str, str]
    metrics: Mapping[str, float]
    parts: Sequence[MetricParts]
    fits: bool = True
    warnings: Sequence[str] = ()
    nodes: object = None
    bands: Mapping[str, Band] = field(default_factory=dict)
    ratio_bands: Mapping[str, Band] = field(default_factory=dict)

    def unit(self, metric: str) -> str:
        """Return the unit of a metric: of one that is not known, as its name ends."""
        if metric in METRICS:
            return METRICS[metric].unit
        if metric in FIGURES:
            return "1"
        return {"s": "s", "bytes": "B"}.get(metric.rpartition("_")[2], "")


def read_saved(path: str) -> Saved:
    """Read a report from a file (.gz too) or from stdin, which is `-`.

    UsageError when it cannot be read, ParseError when it is not JSON or no report that this version writes.
    """
    return saved(_text(path), path)


def saved(text: str, path: str) -> Saved:
    """Read a report from its JSON text; `path` is what it is called. ParseError as for `read_saved`."""
    tree = _parsed(text, path)
    schema = tree.get("schema")
    if schema == REPORT:
        return estimate_of(tree, path)
    if schema == VALIDATION:
        return _validation(tree, path)
    if schema is None:
        raise ParseError(f"'{path}' is not a report: it has no 'schema'; {_HOW}")
    raise ParseError(f"'{path}' has the schema '{schema}'; what can be compared: {REPORT}, {VALIDATION}; {_HOW}")


def read_tree(path: str) -> Mapping[str, object]:
    """Read any document from a file (.gz too) or from stdin, which is `-`; errors as for `read_saved`."""
    return _parsed(_text(path), path)


def _text(path: str) -> str:
    try:
        return read_stdin() if path == "-" else read_text(Path(path))
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror or error}") from error


def _parsed(text: str, path: str) -> Mapping[str, object]:
    if not text.strip():
        raise ParseError(f"'{path}' is empty; {_HOW}")
    try:
        tree = read_json(text, path)
    except ParseError as error:
        raise ParseError(f"{error}; {_HOW}") from error
    if not isinstance(tree, dict):
        raise ParseError(f"'{path}' is not a report: it holds a {type(tree).__name__}; {_HOW}")
    return tree


def estimate_of(tree: Mapping[str, object], path: str) -> Saved:
    """Return the report of an estimate from its document; ParseError for a part that is not as it is written."""
    memory = dict(_numbers(tree, "memory", path))
    capacity = memory.pop("capacity", None)
    inputs = {"tool_version": _shown(tree.get("tool_version"))} | _flat(_mapping(tree, "inputs", path))
    if capacity is not None:
        inputs["system.memory_bytes"] = _shown(capacity)
    run = _mapping(tree, "run", path)
    warnings = tree.get("warnings")
    return Saved(
        path,
        REPORT,
        inputs,
        _metrics(tree, path),
        (
            MetricParts("breakdown", "Where the time goes", _whole(tree, path), "s", _numbers(tree, "breakdown", path)),
            MetricParts(
                "hidden_comm", "Hidden communication", "hidden_comm_s", "s", _numbers(tree, "hidden_comm", path)
            ),
            MetricParts("memory", "Memory of a GPU", "peak_mem_bytes", "B", memory),
            MetricParts(
                "time_shares", "Time of the run", "train_goodput", "1", _numbers(run, "time_shares", path), False
            ),
        ),
        tree.get("feasible") is not False,
        tuple(map(str, warnings)) if isinstance(warnings, list) else (),
        tree.get("nodes"),
        *saved_bands(tree),
    )


def _whole(tree: Mapping[str, object], path: str) -> str:
    """The metric that the breakdown adds up to: a step, or a request of a server."""
    return "e2el_s" if _mapping(tree, "inputs", path).get("phase") == "serve" else "step_time_s"


def _metrics(tree: Mapping[str, object], path: str) -> Mapping[str, float]:
    """Metrics of an estimate: none is below zero."""
    metrics = _needed(_numbers(tree, "metrics", path), path)
    for name, value in metrics.items():
        if value < 0.0:
            raise ParseError(f"'{path}': metrics.{name} is {value:g}, and no metric is below 0; {_HOW}")
    return metrics


def _needed(metrics: Mapping[str, float], path: str) -> Mapping[str, float]:
    if not metrics:
        raise ParseError(f"'{path}' has no metrics; {_HOW}")
    for name, value in metrics.items():
        if value < 0 and name in METRICS and METRICS[name].unit in ("s", "B"):
            raise ParseError(f"'{path}': metrics.{name} is {value:g}, less than nothing; {_HOW}")
    return metrics


def _validation(tree: Mapping[str, object], path: str) -> Saved:
    """A summary of `slipstick validate`: errors of all rows, and data set by data set."""
    overall = _figures(_mapping(tree, "overall", path))
    datasets = _mapping(tree, "datasets", path)
    by_set = {name: _figures(_mapping(datasets, name, path)) for name in datasets}
    parts = [
        MetricParts(figure, f"{figure} by data set", figure, "1", _column(by_set, figure), False)
        for figure in FIGURES[:4]
    ]
    return Saved(path, VALIDATION, {}, _needed(overall, path), parts)


def _figures(record: Mapping[str, object]) -> Mapping[str, float]:
    found = {name: _number(record.get(name)) for name in (*COUNTS, *FIGURES)}
    return {name: value for name, value in found.items() if value is not None}


def _column(by_set: Mapping[str, Mapping[str, float]], figure: str) -> Mapping[str, float]:
    return {name: record[figure] for name, record in by_set.items() if figure in record}


def _mapping(tree: Mapping[str, object], key: str, path: str) -> Mapping[str, object]:
    value = tree.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ParseError(f"'{path}': {key} is a {type(value).__name__}, not an object; {_HOW}")
    return value


def _numbers(tree: Mapping[str, object], key: str, path: str) -> Mapping[str, float]:
    found = {name: (_number(value), value) for name, value in _mapping(tree, key, path).items()}
    for name, (number, value) in found.items():
        if number is None:
            raise ParseError(f"'{path}': {key}.{name} is {json.dumps(value)}, not a finite number; {_HOW}")
    return {name: number for name, (number, _) in found.items() if number is not None}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _flat(tree: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Inputs by path; each override is an input of its own."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            found |= _flat(value, f"{key}.")
        elif name == "overrides" and isinstance(value, list):
            found |= {f"--set {k}": v for k, _, v in (str(one).partition("=") for one in value)}
        else:
            found[key] = _shown(value)
    return found


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return (
        {None: "none", True: "yes", False: "no"}[value]
        if value is None or value is True or value is False
        else (f"{value:.12g}" if isinstance(value, float) else str(value))
    )
