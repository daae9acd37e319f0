"""Rows of a table of training steps to outcomes: read, judged in processes, put beside what was measured."""

from __future__ import annotations

from collections.abc import Callable

from ...frontend import GraphCache
from ..results.outcomes import Outcome, Part
from ..rows.reading import read_rows
from ..rows.rows import Row
from ..rows.tables import Table
from .cases import TrainingCase, training_case
from .causes import cause_of, causes
from .fitted import TABLE, StackRecords
from .machine_shop import MachineShop
from .pool import Answer, answers

Report = Callable[[str], None]


def read_cases(table: Table, shop: MachineShop, faults: list[str]) -> tuple[dict[int, TrainingCase], dict[int, str]]:
    """Return the cases of a table by the places of their rows, and why the other rows have none."""
    return read_rows(table, lambda row: training_case(row, shop), faults)


def step_outcomes(
    table: Table, cache: GraphCache | None, calibration: str | None, jobs: int, report: Report | None, faults: list[str]
) -> list[Outcome]:
    """Return the outcome of every row, in order."""
    cases, skipped = read_cases(table, MachineShop(calibration), faults)
    found = answers(cases, cache, calibration, jobs, report) if not faults else {}
    placed = {place: _skipped(table.rows[place], why) for place, why in skipped.items()}
    known, records = causes(), StackRecords()
    for place, one in found.items():
        row = table.rows[place]
        placed[place] = outcome(cases[place], one, records, cause_of(row.dataset, row.id, known))
    return [placed[place] for place in sorted(placed)]


def outcome(case: TrainingCase, answer: Answer, records: StackRecords, cause: str = "") -> Outcome:
    """Return one step beside its measurement; what was assumed stands as its reason."""
    if answer.reason:
        return _skipped(case.row, answer.reason)
    return Outcome(
        row=case.row, table=TABLE, part=part_of(case, records), predicted=answer.step_s, measured=case.measured_s,
        system=case.system, library=case.stack, kind="step", group=case.group,
        reason=case.outlier or "; ".join(case.assumed), cause=cause,
    )  # fmt: skip


def part_of(case: TrainingCase, records: StackRecords) -> Part:
    """Return whether numbers of its stack were fitted to a case, whether it judges them, or whether it is left out."""
    if case.outlier:
        return Part.EXCLUDED
    return Part.FIT if records.saw(case.stack, case.row.dataset, case.group) else Part.JUDGED


def _skipped(row: Row, why: str) -> Outcome:
    return Outcome(row=row, table=TABLE, part=Part.SKIPPED, reason=why)
