"""A table of measurements as rows of checked fields; what cannot be judged says why."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..ir.errors import SlipstickError, UnknownNameError, UsageError

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class NotJudged(SlipstickError):  # noqa: N818 - a verdict, not a mistake
    """Why a row has no prediction."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: the cells as written, and how to read them."""

    cells: Mapping[str, str]

    @property
    def id(self) -> str:
        """Name of the row."""
        return self.cells["id"]

    @property
    def dataset(self) -> str:
        """The publication the row comes from."""
        return self.cells["dataset"]

    def text(self, column: str) -> str:
        """Return a cell, empty where the column is missing."""
        return (self.cells.get(column) or "").strip()

    def number(self, column: str, default: int | None = None) -> int:
        """Return a whole number; NotJudged where it is not given and there is no default."""
        found = self.measured(column)
        if found is None and default is None:
            raise NotJudged(f"{column} is not given")
        return int(found) if found is not None else int(default or 0)

    def measured(self, column: str) -> float | None:
        """Return a number, None where the cell is empty; UsageError where it is no number."""
        given = self.text(column)
        try:
            return float(given) if given else None
        except ValueError:
            raise UsageError(f"row '{self.id}', column '{column}': '{given}' is not a number") from None

    def flag(self, column: str) -> bool:
        """Return yes or no; an empty cell is no."""
        given = self.text(column).lower()
        if given in _TRUE or given in (*_FALSE, ""):
            return given in _TRUE
        raise UsageError(f"row '{self.id}', column '{column}': '{given}' is neither true nor false")


def read_rows(path: Path, needed: Sequence[str]) -> list[Row]:
    """Read a table; UsageError where it is no table or lacks a column that is needed."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            rows = [Row({k: v for k, v in cells.items() if isinstance(v, str)}) for cells in table]
            columns = table.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read '{path}' as a table: {error}") from error
    lacking = [name for name in needed if name not in columns]
    if lacking:
        raise UsageError(f"'{path}' lacks the columns {', '.join(lacking)}; docs/validation.md lists them all")
    return rows


def of_datasets(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Return the rows of some data sets, all where none is named; UnknownNameError names the nearest."""
    known = dict.fromkeys(r.dataset for r in rows)
    for name in names:
        if name not in known:
            raise UnknownNameError.of("data set", name, known)
    return [r for r in rows if not names or r.dataset in names]
