"""A row of a table of measurements as checked fields; what cannot be judged says why."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import field, replace

from ...ir.errors import SlipstickError, UsageError
from ...ir.records import dataclass
from .publication_files import common
from .publications import Publication

# The largest whole number that a cell can say exactly: beyond it, a float skips some.
MOST = 2**53
# The least that a measurement can be: what divides by it stays finite.
ABOVE_ZERO = sys.float_info.min
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class NotJudged(SlipstickError):  # noqa: N818 - a verdict, not a mistake
    """Why a row has no prediction."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: the cells as written, how to read them, the line of the file, and what its publication says."""

    cells: Mapping[str, str]
    line: int = 0
    source: Publication = field(default_factory=common)

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

    def having(self, cells: Mapping[str, str]) -> Row:
        """Return the row with other cells on top."""
        return replace(self, cells={**self.cells, **cells})

    def completed(self) -> tuple[Row, tuple[str, ...]]:
        """Fill in what its publication says elsewhere, and what has to be assumed, which is returned in words."""
        cells, assumed = self.source.completed(self.cells)
        return replace(self, cells=cells), assumed

    def number(self, column: str, default: int | None = None) -> int:
        """Return a whole number from 1; from 0 where that is the default.

        NotJudged where it is not given and there is no default, UsageError where it is another number.
        """
        found = self.measured(column, 0.0 if default == 0 else 1.0)
        if found is None and default is None:
            raise NotJudged(f"{column} is not given")
        if found is not None and (found != int(found) or found > MOST):
            raise UsageError(f"row '{self.id}', column '{column}': '{self.text(column)}' is not a whole number")
        return int(found) if found is not None else int(default or 0)

    def measured(self, column: str, least: float = ABOVE_ZERO) -> float | None:
        """Return a number, None where the cell is empty; UsageError where it is none, or less than it can be."""
        given = self.text(column)
        try:
            number = float(given) if given else None
        except ValueError:
            raise UsageError(f"row '{self.id}', column '{column}': '{given}' is not a number") from None
        if number is not None and not math.isfinite(number):
            raise UsageError(f"row '{self.id}', column '{column}': '{given}' is not a finite number")
        if number is not None and number < least:
            bound = "above 0" if least == ABOVE_ZERO else f"{least:g} or more"
            raise UsageError(f"row '{self.id}', column '{column}': {given} must be {bound}")
        return number

    def flag(self, column: str) -> bool:
        """Return yes or no; an empty cell is no."""
        given = self.text(column).lower()
        if given in _TRUE or given in (*_FALSE, ""):
            return given in _TRUE
        raise UsageError(f"row '{self.id}', column '{column}': '{given}' is neither true nor false")
