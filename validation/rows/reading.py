"""Rows of a table to cases: what is a fault of the file, and what is a reason to leave a row out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...ir.errors import InternalError, SlipstickError, SystemFileError, UsageError
from .rows import Row
from .tables import Table

C = TypeVar("C")


def read_rows(table: Table, read: Callable[[Row], C], faults: list[str]) -> tuple[dict[int, C], dict[int, str]]:
    """Return the cases of a table by the places of their rows, and why the other rows have none."""
    cases: dict[int, C] = {}
    skipped: dict[int, str] = {}
    for place, row in enumerate(table.rows):
        try:
            cases[place] = read(row)
        except (InternalError, SystemFileError):
            raise
        except UsageError as error:
            # A cell that is no number is a fault of the file; a plan, or lengths, that cannot be are a reason.
            if f"row '{row.id}'" in str(error):
                faults.append(f"{table.path}, line {row.line}: {error}")
            else:
                skipped[place] = str(error).splitlines()[0]
        except SlipstickError as reason:
            skipped[place] = str(reason).splitlines()[0]
    return cases, skipped
