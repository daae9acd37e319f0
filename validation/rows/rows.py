"""A row of a table of measurements as checked fields; what cannot be judged says why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.errors import SlipstickError, UsageError

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class NotJudged(SlipstickError):  # noqa: N818 - a verdict, not a mistake
    """Why a row has no prediction."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: the cells as written, how to read them, and the line of the file."""

    cells: Mapping[str, str]
    line: int = 0

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
            number = float(given) if given else None
        except ValueError:
            raise UsageError(f"row '{self.id}', column '{column}': '{given}' is not a number") from None
        if number is not None and not math.isfinite(number):
            raise UsageError(f"row '{self.id}', column '{column}': '{given}' is not a finite number")
        return number

    def flag(self, column: str) -> bool:
        """Return yes or no; an empty cell is no."""
        given = self.text(column).lower()
        if given in _TRUE or given in (*_FALSE, ""):
            return given in _TRUE
        raise UsageError(f"row '{self.id}', column '{column}': '{given}' is neither true nor false")
