"""Rows of a table to cases: what is a fault of a row, and what is a reason to leave it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...ir.errors import InternalError, SlipstickError, SystemFileError, UsageError
from .rows import Row
from .tables import RowFault, Table

C = TypeVar("C")


def read_rows(table: Table, read: Callable[[Row], C], faults: list[RowFault]) -> tuple[dict[int, C], dict[int, str]]:
    """Return the cases of a table by the places of their rows, and why the other rows have none."""
    cases: dict[int, C] = {}
    skipped: dict[int, str] = {}
    for place, row in enumerate(table.rows):
        try:
            cases[place] = read(row)
        except (InternalError, SystemFileError):
            raise
        except UsageError as error:
            # A cell that is no number is a fault of the row; a plan, or lengths, that cannot be are a reason.
            if f"row '{row.id}'" in str(error):
                faults.append(RowFault(table.path, row, str(error)))
            else:
                skipped[place] = str(error).splitlines()[0]
        except SlipstickError as reason:
            skipped[place] = str(reason).splitlines()[0]
    return cases, skipped
