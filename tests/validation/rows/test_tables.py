"""Files as they are: all faults at once with their lines, kinds by columns, rows by conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slipstick.ir.errors import ParseError, UnknownNameError, UsageError
from slipstick.validation.judge import read_tables
from slipstick.validation.rows.tables import NUMBERS, Table, cell_faults, nearest_kind, read_table
from slipstick.validation.rows.where import conditions, selected

HERE = Path(__file__).parents[1]
Write = Callable[[str], Path]
Toy = Callable[[Sequence[str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "t.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


def read(path: Path) -> Table:
    faults: list[str] = []
    table = read_table(path, faults)
    assert (faults, table.bad) == ([], ())
    return table


def ids(tables: Sequence[Table]) -> list[str]:
    return [row.id for table in tables for row in table.rows]


def test_rows_know_the_lines_they_begin_on(write: Write) -> None:
    table = read(write('id,note\na,"two\nlines"\n\nb,one\n'))
    assert [(r.id, r.line) for r in table.rows] == [("a", 2), ("b", 5)]


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*absent.csv' as a table: No such file"):
        read_table(tmp_path / "absent.csv", [])
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParseError, match=r"bytes\.csv"):
        read_table(tmp_path / "bytes.csv", [])


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), ("id,m\n", "holds no rows"), ("id,id\na,b\n", "column given twice: id"),
     ("id,m\na\n", "line 2: 1 cells under 2 columns")],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(write: Write, text: str, said: str) -> None:
    faults: list[str] = []
    table = read_table(write(text), faults)
    assert said in [*faults, *map(str, table.bad)][0]


def test_every_cell_that_is_no_number_is_named_with_its_line(write: Write) -> None:
    table = read(write("id,m,time_us,note\na,many,1,x\nb,4,nan,x\nc,-4,0,x\nd,,,x\n"))
    found = [str(fault) for fault in cell_faults(table)]
    assert [f.split(": ", 1)[0].rsplit(", ", 1)[1] for f in found] == ["line 2", "line 3", "line 4", "line 4"]
    assert "column 'm': 'many' is not a number" in found[0]
    assert "column 'time_us': 'nan' is not a finite number" in found[1]
    assert "-4 must be 0 or more" in found[2]
    assert "0 must be above 0" in found[3]


def test_all_files_are_looked_at_before_any_is_refused(toy: Toy, tmp_path: Path) -> None:
    wrong = toy(["a,s,H100,pytorch,x,many,1", "b,s,H100,pytorch,x,1,nan"])
    with pytest.raises(UsageError) as caught:
        read_tables([wrong, tmp_path / "absent.csv", HERE / "gemm.csv"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 faults:"
    assert [word in line for word, line in zip(("line 2", "line 3", "absent.csv", "gemm.csv"), lines[1:], strict=True)]


def test_the_kind_is_told_by_columns_and_the_nearest_named(write: Write) -> None:
    table = read(write("id,m,n,time_us\na,1,1,1\n"))
    kinds = [("small", ("id", "m")), ("large", ("id", "m", "n")), ("other", ("id", "rows"))]
    assert nearest_kind(table, kinds) == "large"
    with pytest.raises(UsageError, match=r"nearest: wide, which needs the columns k as well.* kinds: wide"):
        nearest_kind(table, [("wide", ("id", "m", "n", "k"))])


@pytest.mark.parametrize("name", ["attention", "collectives", "elementwise", "fits", "gemm", "memory", "moe"])
def test_shipped_tables_have_numbers_where_numbers_belong(name: str) -> None:
    table = read(HERE / f"{name}.csv")
    assert list(cell_faults(table)) == []
    assert len(set(table.columns) & NUMBERS) >= 5


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ([], ["a", "b", "c"]),
        (["name=x"], ["a", "b"]),
        (["name=x", "name=y"], ["a", "b", "c"]),
        (["name=x", "n_elements>=8"], ["b"]),
        (["n_elements < 8"], ["a"]),
        (["n_elements<=8", "n_elements>4"], ["b"]),
    ],
)
def test_rows_are_chosen_by_conditions(toy: Toy, where: list[str], left: list[str]) -> None:
    tables, _ = read_tables([toy(["a,s,H100,p,x,4,1", "b,s,H100,p,x,8,1", "c,s,H100,p,y,16,1"])])
    assert ids(selected(tables, conditions(where))) == left


@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        ("nme=x", UnknownNameError, "unknown column 'nme'; did you mean 'name'"),
        ("name=z", UnknownNameError, "unknown value of name 'z'; allowed: x"),
        ("name", UsageError, "write COLUMN=VALUE"),
        ("n_elements>many", UsageError, "'many' in a comparison of 'n_elements' is not a number"),
    ],
)
def test_conditions_that_nothing_meets_are_answered(toy: Toy, where: str, error: type[Exception], said: str) -> None:
    tables, _ = read_tables([toy(["a,s,H100,p,x,4,1"])])
    with pytest.raises(error, match=said):
        selected(tables, conditions([where]))


def test_a_value_among_very_many_is_answered_with_the_nearest_alone() -> None:
    tables = [read(HERE / "gemm.csv")]
    with pytest.raises(UnknownNameError, match="no row has id 'llmcompass_matmul_A100_256_12288_1228'; did you mean"):
        selected(tables, conditions(["id=llmcompass_matmul_A100_256_12288_1228"]))
