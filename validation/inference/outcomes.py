"""Rows of a table of serving to outcomes: read, predicted, put beside what was measured, each quantity by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...frontend import GraphCache
from ...ir.errors import InternalError, SlipstickError, SystemFileError
from ..results.outcomes import Outcome, Part
from ..rows.reading import read_rows
from ..rows.rows import Row
from ..rows.tables import RowFault, Table
from .bench import InferenceBench, alike
from .cases import ServedCase, served_case
from .engines import EngineRoom
from .fitted import TABLE, EngineRecords
from .forms import CaseQuantity, MeasuredQuantity
from .predict import Answers, predicted

Report = Callable[[str], None]


def read_cases(table: Table, faults: list[RowFault]) -> tuple[dict[int, ServedCase], dict[int, str]]:
    """Return the cases of a table by the places of their rows, and why the other rows have none."""
    return read_rows(table, served_case, faults)


def served_outcomes(
    table: Table, cache: GraphCache | None, calibration: str | None, report: Report | None, faults: list[RowFault]
) -> list[Outcome]:
    """Return the outcomes of every row, in order: one for each of its quantities."""
    cases, skipped = read_cases(table, faults)
    bench, records = InferenceBench(EngineRoom(calibration), cache), EngineRecords()
    found = {place: [_skipped(table.rows[place], why)] for place, why in skipped.items()}
    places = {id(case): place for place, case in cases.items()}
    for model in alike(list(cases.values())):
        if report is not None:
            report(f"judging {len(model)} rows of {model[0].row.text('model')}")
        for case in model:
            found[places[id(case)]] = list(_outcomes(case, bench, records))
    return [outcome for place in sorted(found) for outcome in found[place]]


def _outcomes(case: ServedCase, bench: InferenceBench, records: EngineRecords) -> Iterator[Outcome]:
    try:
        answers = predicted(case, bench)
    except (InternalError, SystemFileError):
        raise
    except SlipstickError as error:
        yield _skipped(case.row, str(error).splitlines()[0])
        return
    for measured in case.measured:
        yield outcome(case, measured, answers, part_of(case, records))


def outcome(case: ServedCase, measured: MeasuredQuantity, answers: Answers, part: Part) -> Outcome:
    """Return one quantity of a case beside its prediction; what was assumed stands as its reason."""
    answer = answers[measured.quantity]
    rate = measured.quantity is CaseQuantity.THROUGHPUT
    return Outcome(
        row=case.row,
        table=TABLE,
        part=part,
        unit="/s" if rate else "s",
        predicted=answer.value,
        measured=measured.value,
        system=case.system,
        library=case.engine,
        engine=case.engine,
        kind=f"{measured.quantity.value} {'dense' if case.dense else 'experts'}",
        group=case.group,
        reason=case.excluded or "; ".join(case.assumed),
        low=answer.low,
        high=answer.high,
    )


def part_of(case: ServedCase, records: EngineRecords) -> Part:
    """Return whether numbers of its engine were fitted to a case, whether it judges them, or whether it is left out."""
    if case.excluded:
        return Part.EXCLUDED
    if case.in_no_fit:
        return Part.JUDGED
    return Part.FIT if records.saw(case.engine, case.row.dataset, case.group, case.system) else Part.JUDGED


def _skipped(row: Row, why: str) -> Outcome:
    return Outcome(row=row, table=TABLE, part=Part.SKIPPED, reason=why)
