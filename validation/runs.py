"""Whole runs as people publish them: arguments of `slipstick estimate`, a metric of its answer, and what was measured.

Any user can keep such a table of their own: one run a row, with what the source leaves open in a note.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from ..backends.machine.files.catalogue import NO_SOFTWARE
from ..driver.metrics import METRICS
from ..ir.errors import SlipstickError, UsageError, did_you_mean
from ..ir.records import dataclass
from .results.outcomes import Outcome, Part
from .rows.rows import Row
from .rows.split import in_first_half
from .rows.tables import RowFault, Table

TABLE = "runs"
# The metrics of the answer to a command line; SlipstickError says why there is none.
Estimator: TypeAlias = "Callable[[Sequence[str]], Mapping[str, float]]"


def _unit(metric: str) -> str | None:
    """Return the unit of outcomes that a metric is in: seconds, bytes, watts, dollars or a rate; None for others."""
    unit = METRICS[metric].unit
    return unit if unit in ("s", "B", "W", "USD") else "/s" if unit.endswith("/s") else None


@dataclass(frozen=True, slots=True)
class RunJudge:
    """Judges runs by answering their arguments; runs of the same arguments are answered once.

    Attributes:
        estimate: what answers them.
        report: where to tell progress.
    """

    estimate: Estimator
    report: Callable[[str], None] | None = None

    def outcomes(self, table: Table, faults: list[RowFault]) -> list[Outcome]:
        """Judge every row; unknown metrics and arguments that cannot be split are added to `faults`."""
        answers: dict[tuple[str, ...], Mapping[str, float] | SlipstickError] = {}
        found = []
        for place, row in enumerate(table.rows):
            fault = _fault(row)
            if fault:
                faults.append(RowFault(table.path, row, fault))
                continue
            arguments = arguments_of(row, table.path.parent)
            if arguments not in answers:
                if self.report is not None:
                    self.report(f"run {place + 1} of {len(table.rows)}: {row.id}")
                answers[arguments] = self._answer(arguments)
            found.append(_outcome(row, arguments, answers[arguments]))
        return found

    def _answer(self, arguments: Sequence[str]) -> Mapping[str, float] | SlipstickError:
        try:
            return self.estimate(arguments)
        except SlipstickError as error:
            return error


def arguments_of(row: Row, folder: Path) -> tuple[str, ...]:
    """Return the arguments of a row; paths start where its table lies. Steps of no named software are of none."""
    found = []
    for word in shlex.split(row.text("arguments")):
        beside = folder / word
        found.append(str(beside) if "/" in word and beside.is_file() else word)
    named = {"--stack", "--engine", "serve"} & set(found)
    return tuple(found) if named else (*found, "--stack", NO_SOFTWARE)


def _fault(row: Row) -> str:
    """Say what is wrong with a row, nothing where it can be judged."""
    metric = row.text("metric")
    if metric not in METRICS:
        near = did_you_mean(metric, list(METRICS))
        return f"column metric: unknown metric '{metric}'{near} `slipstick list metrics` names all"
    if _unit(metric) is None:
        return (
            f"column metric: '{metric}' is in none of s, B, W, USD and no rate; give the step time or tokens/s instead"
        )
    try:
        measured = row.measured("measured")
    except UsageError:
        measured = None
    if measured is None:
        return f"column measured: '{row.text('measured')}' must be a number above zero"
    try:
        shlex.split(row.text("arguments"))
    except ValueError as error:
        return f"column arguments: {error}"
    return ""


def _outcome(row: Row, arguments: Sequence[str], answer: Mapping[str, float] | SlipstickError) -> Outcome:
    metric = row.text("metric")
    unit = _unit(metric)
    assert unit is not None  # of other metrics a row is refused
    given = dict(pairwise(arguments))
    system, engine = given.get("--system", ""), given.get("--engine", "")
    if isinstance(answer, SlipstickError) or metric not in answer:
        why = str(answer) if isinstance(answer, SlipstickError) else f"the answer has no metric '{metric}'"
        return Outcome(row=row, table=TABLE, part=Part.SKIPPED, unit=unit, kind=metric, reason=why, system=system)
    # A table says which rows constants may have seen: those of the half by which all tables are split.
    fitted = bool(row.text("fitted")) and in_first_half(TABLE, row.id)
    return Outcome(
        row=row,
        table=TABLE,
        part=Part.FIT if fitted else Part.JUDGED,
        unit=unit,
        predicted=answer[metric],
        measured=float(row.text("measured")),
        system=system,
        kind=metric,
        group=row.id,
        reason=row.text("note"),
        engine=engine,
    )
