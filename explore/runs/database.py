"""SQLite files as ledgers need them: opened to read or to write, and every failure as a message for people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ...ir.errors import StorageError, UsageError
from ...ir.text.databases import bound_steps, connect, schema_by, schema_of

# What the file says of itself: `Slip` as a number, and the form of its tables.
APPLICATION = 0x536C6970
SCHEMA = 1
_BUSY_S = 10.0
# Of 16 KiB: what is written waits in the log up to 8 MiB.
_LOG_PAGES = 512


def read_only(path: Path, script: str) -> sqlite3.Connection:
    """Open a file of ours to read it, and have SQLite look it through; it is not changed.

    UsageError where it is missing, not of ours, of another form, broken, or has other tables than `script` makes.
    """
    if not path.is_file():
        raise UsageError(f"'{path}' is no file: there is no such ledger")
    with guarded(path):
        db = readable(path, script)
        try:
            ((found,),) = db.execute("PRAGMA quick_check(1)")
            if found != "ok":
                raise UsageError(damaged(path, " ".join(str(found).split())))
        except BaseException:
            db.close()
            raise
    return db


def writable(path: Path) -> sqlite3.Connection:
    """Open a file of ours to write it, with a write-ahead log; StorageError where that cannot be."""
    with storing(path):
        db = _connected(path, "rw")
        try:
            # Without shared memory (some network file systems) there is no log; the old journal needs none.
            synchronous = "NORMAL" if _has_log(db) else "FULL"
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        except BaseException:
            db.close()
            raise
    return db


def write_new(path: Path, script: str, record: str, checksum: bytes) -> None:
    """Make a file of ours with these tables and the record of its run; whole, or not there at all."""
    if path.exists():
        raise UsageError(f"'{path}' is there already: name another file, or resume it by --resume")
    # In a folder of its own, so that nobody sees it half made.
    with storing(path), TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        part = Path(folder, path.name)
        db = _connected(part, "rwc")
        try:
            db.execute("PRAGMA page_size = 16384")
            db.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; {script}")
            db.execute("INSERT INTO run VALUES (?, ?)", (record, checksum))
        finally:
            db.close()
        part.rename(path)


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turn what SQLite finds wrong while reading into a UsageError."""
    try:
        yield
    except UnicodeDecodeError as error:
        # Python reads SQLite's message on a broken file as text.
        raise UsageError(damaged(path, "text in it is broken")) from error
    except sqlite3.Error as error:
        raise UsageError(_wrong(path, error)) from error


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system find wrong while writing into a StorageError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise StorageError(
            f"cannot write '{path}': {reason}; blocks that were committed before are kept, and --resume goes on with "
            "them when this is mended"
        ) from error


def damaged(path: Path, how: object) -> str:
    """Return the message on a file that is not as it was written."""
    return f"'{path}' is damaged on disk ({how}); nothing was changed: bring back a copy, or start a new run"


def _wrong(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return f"'{path}' is no ledger of a search, or its beginning is damaged ({error}); nothing was changed"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"'{path}' is in use by another process ({error}): try again"
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return f"cannot read '{path}': {error}; its folder must be writable while a log lies beside it"
    return damaged(path, error)


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    """Connect; each statement is a transaction of its own."""
    address = f"{path.absolute().as_uri()}?{mode if '=' in mode else f'mode={mode}'}"
    return connect(address, writes=mode.startswith("rw"), timeout_s=_BUSY_S)


def readable(path: Path, script: str) -> sqlite3.Connection:
    """Connect to read a file of ours; where the folder cannot be written and no log is left, without one.

    UsageError where it is not of ours, of another form, or has other tables than `script` makes.
    """
    db = _connected(path, "ro")
    try:
        bound_steps(db, path.stat().st_size)
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except sqlite3.OperationalError as error:
        db.close()
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        beside = [path.with_name(f"{path.name}-{kind}").exists() for kind in ("wal", "journal")]
        # A journal of a process that died must be played back, which takes writing.
        db = _connected(path, "rw" if any(beside) else "mode=ro&immutable=1")
    except BaseException:
        db.close()
        raise
    try:
        _check(db, path, script)
        db.set_progress_handler(None, 0)
    except BaseException:
        db.close()
        raise
    return db


def _has_log(db: sqlite3.Connection) -> bool:
    try:
        ((mode,),) = db.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError:
        return False
    return str(mode) == "wal"


def _check(db: sqlite3.Connection, path: Path, script: str) -> None:
    ((application,),) = db.execute("PRAGMA application_id")
    if application != APPLICATION:
        raise UsageError(f"'{path}' is an SQLite file, but no ledger of a search")
    ((schema,),) = db.execute("PRAGMA user_version")
    if schema != SCHEMA:
        raise UsageError(
            f"'{path}' has form {schema} of ledgers, and this version of slipstick reads form {SCHEMA}: read it with "
            "the version that wrote it"
        )
    # What another schema computes would run when it is read, or written.
    if schema_of(db) != schema_by(script):
        raise UsageError(f"'{path}' has other tables than a ledger of a search has: start a new run")
