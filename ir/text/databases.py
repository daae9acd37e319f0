"""The one way to a database of SQLite that others wrote: nothing that it brings runs, and what is read is bounded."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from ..errors import NotUnderstoodError
from ..records import dataclass
from .limits import limits, too_much
from .untrusted import open_regular

# Of a text or a row, of columns and of what a schema may compute; far above what any tool writes.
_LIMITS = {
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 5,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
# Steps of SQLite's machine: a row of some 20 bytes takes some 30 of them each time that it is looked at.
_STEPS, _STEPS_A_BYTE, _TICK = 20_000_000, 20, 10_000
# SQLite itself writes the words of a table's statement so.
_TABLE = "CREATE TABLE%"


def connect(address: str, *, writes: bool = False, timeout_s: float = 5.0) -> sqlite3.Connection:
    """Connect to a file by its URI; each statement is a transaction, and functions that a schema calls do not run."""
    db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=timeout_s)
    for limit, most in (*_LIMITS.items(), (sqlite3.SQLITE_LIMIT_LENGTH, min(limits().document_bytes, 10**9))):
        db.setlimit(limit, most)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    if not writes:
        db.execute("PRAGMA query_only = ON")
    return db


def bound_steps(db: sqlite3.Connection, num_bytes: int) -> None:
    """Interrupt a database behind as many steps as the tables of an honest file of this size take."""
    ticks = iter(range((_STEPS + _STEPS_A_BYTE * num_bytes) // _TICK))
    db.set_progress_handler(lambda: next(ticks, None) is None, _TICK)


@dataclass(frozen=True, slots=True)
class ForeignTables:
    """The tables of a database that a tool wrote, of which stored columns alone are read."""

    path: Path
    db: sqlite3.Connection

    def names(self) -> set[str]:
        """Return the names of tables that are neither views nor virtual."""
        rows = self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE ?", (_TABLE,))
        return {str(name) for (name,) in rows}

    def columns(self, table: str) -> set[str]:
        """Return the columns of a table; NotUnderstoodError where one is computed when it is read."""
        rows = list(self.rows(f"PRAGMA table_xinfo({table})"))
        if computed := [str(row[1]) for row in rows if row[-1]]:
            raise NotUnderstoodError(
                f"{self.path}: {table} computes its column '{computed[0]}': stored columns alone are read"
            )
        return {str(row[1]) for row in rows}

    def rows(self, query: str, values: Sequence[object] = (), most: int = 0) -> Iterator[Sequence[object]]:
        """Yield rows; ParseError where their texts have more bytes than `most`, or than a trace where it is 0."""
        most, taken = most or limits().trace_bytes, 0
        for row in self.db.execute(query, tuple(values)):
            taken += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
            if taken > most:
                raise too_much(str(self.path), f"more than {most:,} bytes of texts")
            yield row


@contextmanager
def open_tables(path: Path, what: str) -> Iterator[ForeignTables]:
    """Open the tables of a database to read them.

    Args:
        path: of a regular file, which nobody writes meanwhile.
        what: what a message calls that which is read, as `report of Nsight Systems`.

    NotUnderstoodError for what SQLite cannot read, ParseError for a file that is larger than a trace.
    """
    with open_regular(path, limits().trace_bytes) as file:
        num_bytes = file.seek(0, 2)
    try:
        with closing(connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1")) as db:
            bound_steps(db, num_bytes)
            yield ForeignTables(path, db)
    # What SQLite says of a damaged text holds its bytes, which need be no text.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise NotUnderstoodError(f"{path}: no {what} can be read of it: {error}") from None


def schema_of(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Return the kind, the name and the statement of everything in a schema, however it is spaced."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema")
    return {tuple(re.sub(r"\s+", " ", str(cell)) for cell in row) for row in rows}


def schema_by(script: str) -> set[tuple[str, ...]]:
    """Return the schema that a script makes, as `schema_of`."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(script)
        return schema_of(db)
