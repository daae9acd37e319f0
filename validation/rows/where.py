"""Conditions on the cells of a row, as in `dataset=vidur_linear` or `time_us>=8`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import UnknownNameError, UsageError, did_you_mean
from ...ir.records import dataclass
from .rows import Row
from .tables import Table

# A message names all values of a column that has no more than this.
MOST_NAMED = 40
_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|=|<|>)\s*(.*?)\s*")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """One condition: a column, how it is compared, and with what."""

    column: str
    sign: str
    value: str

    def holds(self, row: Row) -> bool:
        """Whether a row meets it; a row without the cell does not, one whose cell cannot be compared does."""
        if self.sign == "=":
            return row.text(self.column) == self.value
        try:
            number = row.measured(self.column)
        except UsageError:  # a cell that is no number is told with its row
            return True
        return number is not None and _COMPARE[self.sign](number, float(self.value))


def conditions(texts: Sequence[str]) -> tuple[RowCondition, ...]:
    """Read conditions; UsageError says how they are written.

    >>> conditions(["size_bytes > 1e8"])
    (RowCondition(column='size_bytes', sign='>', value='1e8'),)
    """
    return tuple(_condition(text) for text in texts)


def selected(tables: Sequence[Table], wanted: Sequence[RowCondition]) -> list[Table]:
    """Return the tables with the rows that meet all conditions; equal values of one column are alternatives.

    Raises:
        UnknownNameError: a column that no table has, or a value that no row has; names the nearest.
    """
    for condition in wanted:
        _check(tables, condition)
    return [Table(t.path, t.columns, tuple(r for r in t.rows if _meets(r, wanted))) for t in tables]


def _meets(row: Row, wanted: Sequence[RowCondition]) -> bool:
    same = {c.column for c in wanted if c.sign == "="}
    one_of = (any(c.holds(row) for c in wanted if c.sign == "=" and c.column == column) for column in same)
    return all(one_of) and all(c.holds(row) for c in wanted if c.sign != "=")


def _condition(text: str) -> RowCondition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise UsageError(f"cannot select by '{text}': write COLUMN=VALUE, or COLUMN>NUMBER with one of > >= < <=")
    found = RowCondition(match[1], match[2], match[3])
    if found.sign != "=":
        _number(found)
    return found


def _number(condition: RowCondition) -> None:
    try:
        known = not math.isnan(float(condition.value))
    except ValueError:
        known = False
    if not known:
        raise UsageError(f"'{condition.value}' in a comparison of '{condition.column}' is not a number")


def _check(tables: Sequence[Table], condition: RowCondition) -> None:
    having = [t for t in tables if condition.column in t.columns]
    if not having:
        columns = dict.fromkeys(c for t in tables for c in t.columns)
        raise UnknownNameError.of("column", condition.column, columns)
    values = dict.fromkeys(r.text(condition.column) for t in having for r in t.rows)
    if condition.sign == "=" and condition.value not in values:
        raise _unknown_value(condition, list(values))


def _unknown_value(condition: RowCondition, values: Sequence[str]) -> UnknownNameError:
    if len(values) <= MOST_NAMED:
        return UnknownNameError.of(f"value of {condition.column}", condition.value, values)
    near = did_you_mean(condition.value, values).removesuffix(";")
    return UnknownNameError(f"no row has {condition.column} '{condition.value}'{near}")
