"""Cells as they are: what is read, what is refused and in which words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.ir.errors import UsageError
from slipstick.validation.rows.rows import NotJudged, Row

Make = Callable[..., Row]


def test_cells_are_read_as_written(row: Make) -> None:
    one = row(sequence_parallel="True", vocab=" 160.0 ")
    assert (one.number("vocab"), one.flag("sequence_parallel"), one.flag("swiglu"), one.text("none")) == (
        160,
        True,
        False,
        "",
    )
    assert one.number("vpp", 1) == 1


def test_what_is_missing_is_a_reason(row: Make) -> None:
    with pytest.raises(NotJudged, match="micro_batch is not given"):
        row(micro_batch="").number("micro_batch")


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("tp", "two", "'two' is not a number"),
        ("mla", "?", "neither true nor false"),
        ("tp", "nan", "'nan' is not a finite number"),
        ("tp", "inf", "'inf' is not a finite number"),
        ("tp", "0", "0 must be 1 or more"),
        ("tp", "-2", "-2 must be 1 or more"),
        ("tp", "2.5", "'2.5' is not a whole number"),
        ("tp", "1e300", "'1e300' is not a whole number"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(row: Make, column: str, cell: str, words: str) -> None:
    one = row(**{column: cell})
    with pytest.raises(UsageError, match=f"row 'one', column '{column}'.*{words.replace('?', '.')}"):
        one.number(column) if column == "tp" else one.flag(column)
