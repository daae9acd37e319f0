"""Files of measurements to outcomes: the kind of each file is told by its columns, its rows are selected and judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ..ir.errors import UsageError
from .kinds import JudgingSettings, TableKind, table_kinds
from .results.figures import Figures, by_dataset
from .results.outcomes import Outcome, Part
from .rows.tables import RowFault, Table, cell_faults, nearest_kind, raise_all, read_table
from .rows.where import conditions, selected


def judge_files(paths: Sequence[Path], where: Sequence[str], settings: JudgingSettings) -> list[Outcome]:
    """Judge every row of the files that meets the conditions; one that cannot be read is skipped, with its line.

    Raises:
        UsageError: files that cannot be read, or of which no row can be, conditions that nothing meets; all that is
            wrong with the files at once, with their lines.
    """
    settings.room.check()
    wanted = conditions(where)
    bad: list[RowFault] = []
    tables, kinds = read_tables(paths, bad)
    found: list[Outcome] = []
    unread: list[RowFault] = []
    for table, kind in zip(selected(tables, wanted), kinds, strict=True):
        lines = {row.line for row in table.rows}
        faults = [fault for fault in bad if fault.path == table.path and fault.row.line in lines]
        outcomes = kind.outcomes(table.without(faults), settings, faults)
        if table.rows and not table.without(faults).rows:
            unread += faults
        found += sorted([*outcomes, *_unread(kind.name, faults)], key=lambda outcome: outcome.row.line)
    raise_all(unread)
    return found


def _unread(kind: str, faults: Sequence[RowFault]) -> Iterator[Outcome]:
    """Yield what becomes of rows that cannot be read: skipped, each with all that is wrong with it."""
    for line, of_row in groupby(sorted(faults, key=lambda fault: fault.row.line), key=lambda fault: fault.row.line):
        several = list(of_row)
        reason = f"line {line}: {'; '.join(dict.fromkeys(fault.why for fault in several))}"
        yield Outcome(row=several[0].row, table=kind, part=Part.SKIPPED, reason=reason)


def read_tables(paths: Sequence[Path], bad: list[RowFault] | None = None) -> tuple[list[Table], list[TableKind]]:
    """Read files and tell their kinds; rows that cannot be read are added to `bad`.

    UsageError for all that is wrong with the files at once; without `bad`, with their rows as well.
    """
    faults: list[str] = []
    rows: list[RowFault] = []
    tables, kinds = [], []
    for path in paths:
        try:
            table = read_table(path, faults)
            if not table.columns:
                continue
            kinds.append(_kind(table))
            tables.append(table)
            rows += cell_faults(table)
        except UsageError as error:
            faults.append(str(error))
    if bad is None:
        raise_all([*rows, *faults])
    raise_all(faults)
    if bad is not None:
        bad += rows
    return tables, kinds


def chosen(outcomes: Sequence[Outcome], part: str) -> list[Outcome]:
    """Return the outcomes of a part, with those that were skipped; all of them for `all`."""
    return [o for o in outcomes if part == "all" or o.part in (part, Part.SKIPPED)]


def medians(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the median error of each data set that has one."""
    found = {name: Figures.of(of).whole for name, of in by_dataset(outcomes).items()}
    return {name: whole.median for name, whole in found.items() if whole is not None}


def _kind(table: Table) -> TableKind:
    kinds = table_kinds()
    return kinds[nearest_kind(table, [(kind.name, kind.columns) for kind in kinds.values()])]
