"""The ledger of one run: an SQLite file that gets each block as it is done, and gives all of them back.

It has a write-ahead log and commits block by block, so a process that is killed at any moment loses the block in
flight and nothing else. Commits are not forced to the disk one by one (synchronous=NORMAL): a power cut may lose the
last blocks as well, which are then done again, but breaks nothing. What is read is held against checksums.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from types import TracebackType

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..block import Found
from ..job import Described
from .database import damaged, guarded, read_only, storing, writable, write_new
from .lock import Lock
from .packed import Head, checksum, packed, unpacked
from .run import SearchRun

SUFFIX = ".sqlite"
_HEAD = "number, num_legal, pruned, crashed, num_rows, least, most, data_sum, checksum"
_TABLES = """
CREATE TABLE run (record TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE block (
    number INTEGER PRIMARY KEY, num_legal INTEGER NOT NULL, pruned TEXT NOT NULL, crashed TEXT NOT NULL,
    num_rows INTEGER NOT NULL, least BLOB NOT NULL, most BLOB NOT NULL, data_sum BLOB NOT NULL,
    checksum BLOB NOT NULL, data BLOB NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Ledger:
    """An open ledger; close it, or use it in a `with`.

    Attributes:
        path: its file.
        run: what it is a ledger of.
    """

    path: Path
    run: SearchRun
    _db: sqlite3.Connection = field(repr=False)
    _lock: Lock | None = field(default=None, repr=False)

    @classmethod
    def create(cls, path: Path, run: SearchRun) -> Ledger:
        """Begin a run, to be written to by this process alone; the file is whole or not there at all.

        UsageError where something is there already, StorageError where nothing can be written.
        """
        lock = _locked(path)
        try:
            record = run.to_json()
            write_new(path, _TABLES, record, checksum([record.encode()]))
            return cls(path, run, writable(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open a ledger to read it; another process may be writing it.

        UsageError where it is missing, no ledger, written in another form, or damaged.
        """
        db = read_only(path)
        try:
            return cls(path, _record(db, path), db)
        except BaseException:
            db.close()
            raise

    @classmethod
    def resume(cls, path: Path, job: Described, version: str) -> Ledger:
        """Open a ledger to resume it, in this process alone.

        UsageError as in `open`, and where another version wrote it, another job, or a process still does.
        """
        with cls.open(path) as found:
            found.run.check_version(version, path.stem)
            found.run.check_job(job, path.stem)
        lock = _locked(path)
        try:
            return cls(path, found.run, writable(path), lock)
        except BaseException:
            lock.release()
            raise

    def longer(self, job: Described) -> Ledger:
        """Make room for the blocks that a longer run of the same search has; StorageError where it cannot be kept."""
        run = replace(self.run, num_blocks=len(job.blocks()), text=job.text)
        record = run.to_json()
        with storing(self.path):
            self._db.execute("UPDATE run SET record = ?, checksum = ?", (record, checksum([record.encode()])))
        return replace(self, run=run)

    def write(self, found: Found) -> None:
        """Commit a block; one that is there already is written anew. StorageError leaves the ledger as it was."""
        head, data = packed(found, self.run.columns)
        row = (*head, head.checksum(), data)
        with storing(self.path):
            self._db.execute(f"REPLACE INTO block ({_HEAD}, data) VALUES ({', '.join('?' * len(row))})", row)

    def heads(self) -> Iterator[Head]:
        """Yield what is said of each block that is done, in order, without its plans; UsageError at damage."""
        for number, row in self._rows(_HEAD):
            head = Head.read(row)
            if head is None:
                raise self._damage(number)
            yield head

    def kept(self) -> Iterator[Found]:
        """Yield what was found in each block that is done, in order, one at a time in memory; UsageError at damage."""
        for number, found in self._checked():
            if found is None:
                raise self._damage(number)
            yield unpacked(*found, self.run.columns)

    def sound(self) -> Iterator[Found]:
        """Yield what was found in each block that is done, in order; those that are damaged count as not done."""
        for _, found in self._checked():
            if found is not None:
                yield unpacked(*found, self.run.columns)

    def done(self) -> set[int]:
        """Return the numbers of blocks that are done and sound."""
        return {number for number, found in self._checked() if found is not None}

    def num_done(self) -> int:
        """Return how many blocks are there, without looking at them."""
        with guarded(self.path):
            ((number,),) = self._db.execute("SELECT count(*) FROM block")
        return int(number)

    def close(self) -> None:
        """Close it; of a run that is complete one plain file is left, that can be read where nothing can be written."""
        try:
            if self._lock is not None:
                # What cannot be tidied up now, as somebody reads it, is whole all the same.
                with suppress(sqlite3.Error, UsageError):
                    if self.num_done() == self.run.num_blocks:
                        self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _checked(self) -> Iterator[tuple[int, tuple[Head, bytes] | None]]:
        """Number, head and plans of each block; None for what is not as it was written."""
        for number, (*row, data) in self._rows(f"{_HEAD}, data"):
            head = Head.read(row)
            if head is not None and isinstance(data, bytes) and checksum([data]) == head.data_sum:
                yield number, (head, data)
            else:
                yield number, None

    def _rows(self, columns: str) -> Iterator[tuple[int, Sequence[object]]]:
        """Rows in order; UsageError where numbers do not go up, or leave the space."""
        last = -1
        with guarded(self.path):
            for row in self._db.execute(f"SELECT {columns} FROM block ORDER BY number"):
                number = row[0]
                if not isinstance(number, int) or not last < number < self.run.num_blocks:
                    raise UsageError(damaged(self.path, f"a block has the number {number}"))
                last = number
                yield number, row

    def _damage(self, number: int) -> UsageError:
        return UsageError(
            f"'{self.path}' is damaged on disk: block {number} is not what was written; nothing was changed, and "
            "`slipstick search --resume` does that block again"
        )


def lock_of(path: Path) -> Path:
    """Return the file that is locked while a process writes a ledger."""
    return path.with_name(f"{path.name}.lock")


def _locked(path: Path) -> Lock:
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return Lock.take(lock_of(path), f"run '{path.stem}'")


def _record(db: sqlite3.Connection, path: Path) -> SearchRun:
    """Read what the run is; UsageError where it is not what was written."""
    with guarded(path):
        rows = db.execute("SELECT record, checksum FROM run").fetchall()
    record, written = rows[0] if len(rows) == 1 else (None, None)
    if not isinstance(record, str) or checksum([record.encode()]) != written:
        raise UsageError(damaged(path, "what was searched is not what was written"))
    return SearchRun.of_json(record)
