"""Ledgers that somebody made to do harm: tables that compute, triggers, blocks that unpack to more than they say."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from slipstick.explore.runs.database import APPLICATION, SCHEMA
from slipstick.explore.runs.ledger import _TABLES, Ledger
from slipstick.explore.runs.packed import Head, unpacked
from slipstick.ir.errors import ParseError, UsageError


@pytest.mark.parametrize(
    "script",
    [
        _TABLES.replace("data BLOB NOT NULL", "data BLOB GENERATED ALWAYS AS (zeroblob(900000000))"),
        f"{_TABLES} CREATE TRIGGER more AFTER INSERT ON block BEGIN DELETE FROM run; END;",
        f"{_TABLES} CREATE VIEW other AS SELECT 1;",
        _TABLES.replace("CREATE TABLE run (", "CREATE VIEW run AS SELECT 1 AS record, 2 AS checksum; CREATE TABLE x ("),
    ],
)
def test_other_tables_than_a_ledger_has_are_refused(tmp_path: Path, script: str) -> None:
    path = tmp_path / "run.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; {script}")
    with pytest.raises(UsageError, match="other tables than a ledger"):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("num_rows", "packed", "error"),
    [(3, 100_000_000, UsageError), (3, 8, UsageError), (10**12, 24, ParseError)],
    ids=["bomb", "short", "rows"],
)
def test_a_block_is_as_large_as_its_head_says(num_rows: int, packed: int, error: type[Exception]) -> None:
    head = Head(0, num_rows, "{}", "[]", num_rows, b"", b"", b"")
    with pytest.raises(error):
        unpacked(head, b"\0" + zlib.compress(bytes(packed)), ["step_time_s"])
