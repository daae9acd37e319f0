"""Tables as they are: what is read, what is refused and in which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.ir.errors import UnknownNameError, UsageError
from slipstick.validation.rows import NotJudged, Row, of_datasets, read_rows

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
    ("column", "cell", "words"), [("tp", "two", "'two' is not a number"), ("mla", "?", "neither true nor false")]
)
def test_what_cannot_be_read_is_an_error_with_its_place(row: Make, column: str, cell: str, words: str) -> None:
    one = row(**{column: cell})
    with pytest.raises(UsageError, match=f"row 'one', column '{column}'.*{words.replace('?', '.')}"):
        one.number(column) if column == "tp" else one.flag(column)


def test_a_table_without_a_needed_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,dataset\na,b\n")
    assert [r.id for r in read_rows(path, ["id"])] == ["a"]
    with pytest.raises(UsageError, match="lacks the columns tp, pp"):
        read_rows(path, ["id", "tp", "pp"])


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_rows(tmp_path / "absent.csv", ["id"])
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read"):
        read_rows(tmp_path / "bytes.csv", ["id"])


def test_a_misspelt_data_set_is_answered_with_the_nearest(row: Make) -> None:
    rows = [row(), row(dataset="yours")]
    assert of_datasets(rows, ["yours"]) == rows[1:]
    assert of_datasets(rows, []) == rows
    with pytest.raises(UnknownNameError, match="yours"):
        of_datasets(rows, ["your"])
