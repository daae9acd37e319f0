"""A prediction beside what was measured: one comparison like that of two reports, with kernels by class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...ir.errors import ParseError, UsageError
from ...measured.match.planned import planned_of
from ...measured.match.run import MatchedRun, matched_run
from ...measured.run import MeasuredRun, is_trace, of_trace, read_measured
from ...measured.traces.trace import read_trace
from .comparison import Comparison, compare
from .saved import REPORT, MetricParts, Saved

_LONGEST_S = 10 * 365 * 86400.0
# Classes of kernels of a trace, by the part of a breakdown that they are; what is in none is pointwise.
_CLASSES = {
    "compute.matmul": "gemm",
    "compute.attention": "attention",
    "compute.norm": "norm",
    "compute.lent_sms": "exposed communication",
    "stragglers": "exposed communication",
    "offload": "exposed copies",
    "bubble": "idle",
    "host": "idle",
}


def beside(
    predicted: Saved, paths: Sequence[Path], steps: int | None = None, stage: int | None = None
) -> tuple[Comparison, MatchedRun | None]:
    """Return a prediction (A) beside the first of measured runs (B), and for traces kernels matched to nodes.

    UsageError where several files are not traces of ranks, or a flag of traces is given without one.
    """
    if not is_trace(paths[0]):
        if len(paths) > 1:
            raise UsageError(f"'{paths[0]}' is no trace: several files are ranks of a run, each with its trace")
        if stage is not None:
            raise UsageError(f"'{paths[0]}' is no trace: --stage says of which stage the kernels of one are")
        return against(predicted, read_measured(paths[0], steps)), None
    traces = [read_trace(path) for path in paths]
    found = against(predicted, of_trace(traces[0], steps))
    if predicted.nodes is None:
        return found, None
    planned = planned_of(predicted.nodes, predicted.path)
    if stage is not None and stage >= planned.num_stages:
        raise UsageError(f"there is no stage {stage}: the prediction has {planned.num_stages}, from 0 on")
    return found, matched_run(traces, planned, stage or 0, steps)


def against(predicted: Saved, run: MeasuredRun) -> Comparison:
    """Return a prediction (A) beside a measured run (B); UsageError where they share no metric.

    Changes are measured / predicted - 1; the inputs are those of the prediction.
    """
    if predicted.schema != REPORT:
        raise UsageError(f"'{predicted.path}' is a {predicted.schema}: a measured run stands beside an estimate")
    for name, value in run.metrics.items():
        if not 0 <= value < (_LONGEST_S if name.endswith("_s") else math.inf):
            raise ParseError(f"'{run.path}': {name} is {value:g}; seconds of a run are 0 to ten years")
    parts = [part for part in predicted.parts if part.name == "breakdown" and part.of == "step_time_s"]
    own = tuple(_parts(_by_class(part.values)) for part in parts if run.classes)
    measured = Saved(
        run.path,
        REPORT,
        predicted.inputs,
        run.metrics,
        tuple(_parts(run.classes) for _ in own),
        warnings=(run.kind, *run.notes),
    )
    both = {name: value for name, value in predicted.metrics.items() if name in run.metrics}
    if not both:
        raise UsageError(f"'{predicted.path}' and '{run.path}', a {run.kind}, have no metric in common")
    return compare(replace(predicted, metrics=both, parts=own, warnings=()), measured)


def _by_class(breakdown: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in breakdown.items():
        usual = "exposed communication" if name.startswith("comm.") else "pointwise"
        kind = _CLASSES.get(name, usual)
        found[kind] = found.get(kind, 0.0) + seconds
    return found


def _parts(values: Mapping[str, float]) -> MetricParts:
    return MetricParts("classes", "Kernels by class", "step_time_s", "s", values)
