"""What every result can do, on one whose rows are known."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slipstick.ir.errors import UsageError
from slipstick.report.results.result import Result
from slipstick.report.results.table import Columns, Line, Panel, Row

ROWS: tuple[Row, ...] = (
    {"tp": 1, "step_time_s": 0.1, "sp": False, "recompute": "none", "count": 3},
    {"tp": 2, "step_time_s": 2.0, "sp": True, "recompute": 'a "b", c', "left": None},
)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Known(Result):
    """A result of two rows."""

    found: Sequence[Row] = field(default=ROWS)
    name: str = "model"

    def json(self) -> str:
        return json.dumps({"rows": list(self.found)})

    def text(self, columns: int | None = None, color: bool = False) -> str:
        return f"{columns} {color}"

    def summary(self) -> Sequence[Line]:
        return [(self.name, "train"), ("plan", "tp2"), ("step", "2 s")]

    def rows(self) -> Sequence[Row]:
        return self.found

    def panels(self) -> Sequence[Panel]:
        return [Panel("Parts", ("part", "time"), [("a|b", "1 s"), ("c", "3 s")], (0.25, 0.75)), Panel("None", (), ())]


def test_it_says_itself_in_a_few_lines() -> None:
    assert repr(Known()) == "model  train\n  plan  tp2\n  step  2 s"


def test_columns_have_a_value_for_each_row() -> None:
    assert Known().to_columns() == {
        "tp": [1, 2], "step_time_s": [0.1, 2.0], "sp": [False, True], "recompute": ["none", 'a "b", c'],
        "count": [3, None], "left": [None, None],
    }  # fmt: skip


def test_a_frame_is_made_of_columns() -> None:
    def shape(columns: Columns) -> tuple[int, int]:
        return len(next(iter(columns.values()))), len(columns)

    assert Known().to_frame(shape) == (2, 6)


def test_a_frame_needs_a_library_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstick.report.results.result.FRAMES", ("no_such_library",))
    with pytest.raises(UsageError, match="a frame needs no_such_library"):
        Known().to_frame()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_of_a_library_has_whole_numbers_where_they_are(library: str) -> None:
    frames = pytest.importorskip(library)
    narwhals = pytest.importorskip("narwhals")
    frame = narwhals.from_native(Known().to_frame(frames.DataFrame))
    assert frame.schema["tp"] == narwhals.Int64
    assert frame["step_time_s"].to_list() == [0.1, 2.0]


def test_a_frame_is_one_of_pandas_where_there_is_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    assert isinstance(Known().to_frame(), pandas.DataFrame)


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md", ".html", ".txt", ".json.gz"])
def test_a_suffix_says_the_form(suffix: str, tmp_path: Path) -> None:
    path = Known().save(tmp_path / f"x{suffix}")
    data = path.read_bytes()
    text = (gzip.decompress(data) if suffix.endswith(".gz") else data).decode()
    assert text == Known().form({".txt": "table", ".json.gz": "json"}.get(suffix, suffix[1:]))


@pytest.mark.parametrize("name", ["x.xlsx", "x", "x.svg", "x.parquet.gz"])
def test_a_suffix_that_says_no_form_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"formats of this result: .json, .csv, .parquet, .md, .html"):
        Known().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_csv_reads_back_as_it_was() -> None:
    head, *rows = csv.reader(Known().form("csv").splitlines())
    assert head == ["tp", "step_time_s", "sp", "recompute", "count", "left"]
    assert rows == [["1", "0.1", "False", "none", "3", ""], ["2", "2.0", "True", 'a "b", c', "", ""]]


def test_columns_of_parquet_have_the_types_of_their_values(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = Known().save(tmp_path / "it's [1].parquet")
    path.rename(tmp_path / "x.parquet")
    found = duckdb.sql(f"SELECT * FROM '{tmp_path}/x.parquet'")
    assert [str(kind) for kind in found.types] == ["BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "BIGINT", "VARCHAR"]
    assert found.fetchall() == [(1, 0.1, False, "none", 3, None), (2, 2.0, True, 'a "b", c', None, None)]


def test_a_fraction_among_whole_numbers_makes_a_column_of_fractions(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = Known(found=[{"x": 1}, {"x": 1e300}, {"x": 0.1 + 0.2}]).save(tmp_path / "x.parquet")
    assert duckdb.sql(f"SELECT x FROM '{path}'").fetchall() == [(1.0,), (1e300,), (0.1 + 0.2,)]


def test_markdown_is_text_whatever_it_says() -> None:
    text = Known(name="<b>*x*").markdown()
    assert text.startswith("# \\<b>\\*x\\*\n")
    assert "| a\\|b | 1 s |" in text


def test_a_page_escapes_what_it_is_given() -> None:
    page = Known(name='<script>"&', command="slipstick estimate '<x>'").html()
    assert '<script>"' not in page
    assert "&lt;script&gt;&#34;&amp;" in page
    assert "slipstick estimate &#39;&lt;x&gt;&#39;" in page


def test_a_page_has_bars_of_the_shares_and_no_table_without_rows() -> None:
    page = Known().html()
    assert [part.partition('"')[0] for part in page.split("width:")[1:] if "%" in part[:6]][-2:] == ["25.0%", "75.0%"]
    assert "<h2>None" not in page


def test_a_notebook_shows_the_summary() -> None:
    shown = Known(name="<x>")._repr_html_()
    assert "<strong>&lt;x&gt;</strong> train" in shown
    assert "<td>2 s</td>" in shown


def test_only_what_has_a_picture_makes_one() -> None:
    with pytest.raises(UsageError, match="there is no picture of this result"):
        Known().svg()
