"""`slipstick calibrate --measured`: a stack for the user's own machine from a run and its prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir import __version__
from ...ir.errors import UsageError
from ..output.files import columns, writing

if TYPE_CHECKING:
    from ...backends.machine.files.system_tree import Tree
    from ...report.compare.saved import Saved
    from ...validation.fit.traces.fit import PredictedParts, TraceFit


def calibrate_trace(
    measured: Path, predicted: str, stack: str | None, output: Path, steps: int | None, report: Callable[[str], None]
) -> int:
    """Fit a stack to a trace beside its prediction, write it, and print what was fitted and how near it comes."""
    from ...measured.match.match import match
    from ...measured.match.planned import planned_of
    from ...measured.run import is_trace
    from ...measured.traces.trace import read_trace
    from ...report.compare.saved import read_saved
    from ...validation.fit.traces.fit import fit_trace
    from ...validation.fit.traces.fit_file import check, refuse_other, tree_of

    if output.suffix not in (".yaml", ".yml"):
        raise UsageError(f"a trace makes one stack: give -o FILE.yaml, not '{output}'")
    refuse_other(output)
    saved = read_saved(predicted)
    if saved.nodes is None:
        raise UsageError(f"'{predicted}' has no nodes: write it again with `slipstick estimate ... -o {predicted}`")
    if not is_trace(measured):
        raise UsageError(f"'{measured}' is no trace: a stack is fitted to kernels, which a log does not have")
    like = stack or saved.inputs.get("system.stack", "default")
    parts = _parts(saved, like)
    matched = match(read_trace(measured), planned_of(saved.nodes, predicted), 0, steps)
    fit = fit_trace(matched, parts)
    tree = tree_of(fit, like, output, [measured], f"slipstick {__version__}")
    check(tree, like)
    click.echo(_text(fit))
    for path, why in _by_reason(fit.untold).items():
        report(f"not told: {path}: {why}")
    _write(output, tree)
    return 0


def _parts(saved: Saved, like: str) -> PredictedParts:
    from ...validation.fit.traces.fit import PredictedParts
    from ...validation.fit.traces.fit_file import stack_of

    breakdown = next(part.values for part in saved.parts if part.name == "breakdown")
    if "step_time_s" not in saved.metrics:
        raise UsageError(f"'{saved.path}' is no prediction of a step: a trace is of steps")
    chip = saved.inputs.get("system.calibration", "")
    return PredictedParts(saved.metrics["step_time_s"], breakdown.get("host", 0.0), stack_of(like, chip))


def _by_reason(untold: Mapping[str, str]) -> dict[str, str]:
    """Join the paths that have one reason."""
    found: dict[str, list[str]] = {}
    for path, why in untold.items():
        found.setdefault(why, []).append(path)
    return {", ".join(paths): why for why, paths in found.items()}


def _text(fit: TraceFit) -> str:
    """Two tables: the numbers, and how near predictions come before and after."""
    from ...backends.machine.software.stack_limits import movable
    from ...report.columns import in_columns
    from ...report.readable import shown

    numbers = [["number", "before", "after"]]
    for number in fit.numbers:
        at = movable(number.path)
        numbers.append([number.path, *(f"{x / at.scale:.4g} {at.unit}".strip() for x in (number.before, number.value))])
    alone = fit.judges == fit.fitted
    judge = "the step that was fitted" if alone else f"{len(fit.judges)} other steps"
    rows = [[f"in {judge}", "before", "after", "measured", "error before", "error after"]]
    for row in fit.judged:
        seconds = [shown(x, "s") for x in (row.before_s, row.after_s, row.measured_s)]
        rows.append([row.name, *seconds, f"{row.error_before:+.1%}", f"{row.error_after:+.1%}"])
    return f"{in_columns(numbers, columns())}\n\n{in_columns(rows, columns())}"


def _write(path: Path, tree: Mapping[str, Tree]) -> None:
    from ...ir.text.files import write_whole
    from ...validation.fit.calibration_file import text_of

    with writing(path):
        write_whole(path, text_of(tree, "A stack fitted to a run that was measured; `slipstick calibrate --measured`."))
