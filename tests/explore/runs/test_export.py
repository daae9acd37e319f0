from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from slipstick.explore.block import Found
from slipstick.explore.runs.export import ColumnCondition, Selection, cells, write_csv, write_parquet
from slipstick.explore.runs.ledger import Ledger
from slipstick.explore.runs.run import SearchRun
from slipstick.ir.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

WORDS = {"kind": ("plain", "with, comma", 'it\'s "so"')}
COLUMNS = ("tp", "kind", "step_time_s")


def _ledger(path: Path, *tables: np.ndarray) -> Ledger:
    """A run of one block a table; its rows are tp, kind, step_time_s."""
    run = SearchRun("1.0", "d", "gpus: 8\n", COLUMNS, len(tables), command="slipstick search 'a b'", words=WORDS)
    with Ledger.create(path, run) as ledger:
        for number, table in enumerate(tables):
            ledger.write(Found(number, {}, len(table), dict(zip(COLUMNS, np.transpose(table), strict=True))))
    return Ledger.open(path)


FIRST = np.array([[1.0, 0.0, 0.25], [2.0, 1.0, np.nan]])
SECOND = np.array([[4.0, 2.0, 1e300], [8.0, 0.0, np.inf], [8.0, 0.0, 0.1]])
NONE = np.zeros((0, 3))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return _ledger(tmp_path / "a.sqlite", FIRST, NONE, SECOND)


def _csv(ledger: Ledger, names: list[str] | None = None, *conditions: str) -> str:
    out = io.BytesIO()
    with ledger:
        write_csv(Selection.of(ledger, names, conditions), out)
    return out.getvalue().decode()


def test_csv_has_each_row_in_order_with_words_and_all_digits(ledger: Ledger) -> None:
    assert _csv(ledger) == (
        'tp,kind,step_time_s\n1,plain,0.25\n2,"with, comma",\n4,"it\'s ""so""",1e+300\n8,plain,inf\n8,plain,0.1\n'
    )


def test_columns_come_in_the_order_named(ledger: Ledger) -> None:
    assert _csv(ledger, ["step_time_s", "tp"]).splitlines()[:2] == ["step_time_s,tp", "0.25,1"]


@pytest.mark.parametrize(
    ("conditions", "tps"),
    [
        (["step_time<=250ms"], ["1", "8"]),
        (["kind=plain", "tp>1"], ["8", "8"]),
        (["tp=1,4"], ["1", "4"]),
        (["tp!=1,4", "step_time_s!=100ms"], ["2", "8"]),
        (["step_time_s<50ms"], []),
    ],
)
def test_conditions_choose_rows(ledger: Ledger, conditions: list[str], tps: list[str]) -> None:
    assert [row["tp"] for row in csv.DictReader(_csv(ledger, None, *conditions).splitlines())] == tps


@given(arrays.arrays(np.float64, st.integers(0, 6), elements=st.floats(allow_nan=False)))
def test_numbers_of_csv_read_back_as_they_are(column: np.ndarray) -> None:
    assert [float(str(cell)) for cell in cells(column, None)] == column.tolist()


class TestParquet:
    @staticmethod
    def _ask(question: str) -> DuckDBPyRelation:
        found: DuckDBPyRelation = pytest.importorskip("duckdb").sql(question)
        return found

    def test_rows_come_back_in_order(self, ledger: Ledger, tmp_path: Path) -> None:
        path = tmp_path / "out.parquet"
        with ledger:
            assert write_parquet(Selection.of(ledger, None, []), path) == 5
        rows = self._ask(f"FROM '{path}'").fetchall()
        assert [row[:2] for row in rows] == [
            (1.0, "plain"), (2.0, "with, comma"), (4.0, "it's \"so\""), (8.0, "plain"), (8.0, "plain"),
        ]  # fmt: skip
        times = np.array([row[2] for row in rows], dtype=np.float64)
        assert times.tobytes() == np.concatenate([FIRST, SECOND])[:, 2].tobytes()

    def test_many_blocks_make_several_parts_and_stay_in_order(self, tmp_path: Path) -> None:
        def block(k: int) -> np.ndarray:
            return np.stack([np.arange(k * 50_000, (k + 1) * 50_000), np.zeros(50_000), np.ones(50_000)], axis=1)

        # A folder whose name would be a pattern.
        folder = tmp_path / "a[1]*'s"
        with _ledger(tmp_path / "a.sqlite", *map(block, range(6))) as ledger:
            assert write_parquet(Selection.of(ledger, ["tp"], ["tp>=7"]), folder / "out.parquet") == 299_993
        assert [p.name for p in folder.iterdir()] == ["out.parquet"]
        (folder / "out.parquet").rename(tmp_path / "out.parquet")
        found = self._ask(f"SELECT tp FROM '{tmp_path}/out.parquet'").fetchnumpy()["tp"]
        assert np.array_equal(found, np.arange(7, 300_000))

    def test_no_rows_still_have_columns(self, ledger: Ledger, tmp_path: Path) -> None:
        path = tmp_path / "out.parquet"
        with ledger:
            assert write_parquet(Selection.of(ledger, None, ["tp>99"]), path) == 0
        found = self._ask(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
        assert [column[:2] for column in found] == [("tp", "BIGINT"), ("kind", "VARCHAR"), ("step_time_s", "DOUBLE")]

    def test_the_file_says_where_it_is_from(self, ledger: Ledger, tmp_path: Path) -> None:
        path = tmp_path / "out.parquet"
        with ledger:
            write_parquet(Selection.of(ledger, None, []), path)
        told = dict(self._ask(f"SELECT key, value FROM parquet_kv_metadata('{path}')").fetchall())
        assert told[b"slipstick_version"] == b"1.0"
        assert told[b"slipstick_command"] == b"slipstick search 'a b'"
        assert told[b"slipstick_space"] == b"gpus: 8\n"

    def test_without_duckdb_the_message_says_what_to_install(
        self, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "duckdb", None)
        with ledger, pytest.raises(UsageError, match=r"needs slipstick\[results\]: pip install"):
            write_parquet(Selection.of(ledger, None, []), tmp_path / "out.parquet")


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("step_time_s", "is no condition: a condition is a column, one of"),
            ("stp>1", "unknown column 'stp'; did you mean 'tp'"),
            ("step_time_s<20GiB", "wrong unit 'GiB'"),
            ("tp<8,9", "holds one number against another"),
            ("kind<plain", "holds one number against another"),
            ("kind=plane", "unknown kind 'plane'; did you mean 'plain'"),
            ("tp=x", "'x' is not a quantity"),
        ],
    )
    def test_conditions(self, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            ColumnCondition.of(text, COLUMNS, WORDS)

    def test_columns(self, ledger: Ledger) -> None:
        with ledger:
            with pytest.raises(UnknownNameError, match="unknown column 'step_time'; did you mean 'step_time_s'"):
                Selection.of(ledger, ["step_time"], [])
            for names in ([], ["tp", "tp"]):
                with pytest.raises(UsageError, match="name one or more, each once"):
                    Selection.of(ledger, names, [])
