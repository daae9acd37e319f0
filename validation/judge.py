"""Files of measurements to outcomes: the kind of each file is told by its columns, its rows are selected and judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..ir.errors import UsageError
from .kinds import JudgingSettings, TableKind, table_kinds
from .results.figures import Figures, by_dataset
from .results.outcomes import Outcome, Part
from .rows.tables import Table, cell_faults, nearest_kind, raise_all, read_table
from .rows.where import conditions, selected


def judge_files(paths: Sequence[Path], where: Sequence[str], settings: JudgingSettings) -> list[Outcome]:
    """Judge every row of the files that meets the conditions.

    Raises:
        UsageError: files that cannot be read, cells that are no numbers, conditions that nothing meets; all that is
            wrong with the files at once, with their lines.
    """
    settings.room.check()
    wanted = conditions(where)
    tables, kinds = read_tables(paths)
    faults: list[str] = []
    found = [
        outcome
        for table, kind in zip(selected(tables, wanted), kinds, strict=True)
        for outcome in kind.outcomes(table, settings, faults)
    ]
    raise_all(faults)
    return found


def read_tables(paths: Sequence[Path]) -> tuple[list[Table], list[TableKind]]:
    """Read files and tell their kinds; UsageError for all that is wrong with them at once."""
    faults: list[str] = []
    tables, kinds = [], []
    for path in paths:
        try:
            table = read_table(path, faults)
            if not table.columns:
                continue
            kinds.append(_kind(table))
            tables.append(table)
            faults += cell_faults(table)
        except UsageError as error:
            faults.append(str(error))
    raise_all(faults)
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
