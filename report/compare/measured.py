"""A prediction beside what was measured: one comparison like that of two reports, with kernels by class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.errors import UsageError
from ...measured.run import MeasuredRun
from .comparison import Comparison, compare
from .saved import REPORT, Parts, Saved

# Classes of kernels of a trace, by the part of a breakdown that they are; what is in none is pointwise.
_CLASSES = {
    "compute.matmul": "gemm",
    "compute.attention": "attention",
    "compute.norm": "norm",
    "compute.lent_sms": "exposed communication",
    "offload": "exposed copies",
    "bubble": "idle",
    "host": "idle",
}


def against(predicted: Saved, run: MeasuredRun) -> Comparison:
    """Return a prediction (A) beside a measured run (B); UsageError where they share no metric.

    Changes are measured / predicted - 1; the inputs are those of the prediction.
    """
    if predicted.schema != REPORT:
        raise UsageError(f"'{predicted.path}' is a {predicted.schema}: a measured run stands beside an estimate")
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


def _parts(values: Mapping[str, float]) -> Parts:
    return Parts("classes", "Kernels by class", "step_time_s", "s", values)
