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
from shutil import rmtree
from time import monotonic
from types import TracebackType

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..block import Found, Stored
from ..job import Described
from .database import damaged, guarded, read_only, readable, storing, writable, write_new
from .lock import Lock
from .packed import Head, checksum, packed, unpacked
from .run import SearchRun

SUFFIX = ".sqlite"
_HEAD = "number, num_legal, pruned, crashed, num_rows, least, most, data_sum, checksum"
_REPLACE = f"REPLACE INTO block ({_HEAD}, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Blocks in shards that are written down together, and how long the first of them may wait for the others.
_TOGETHER, _TOGETHER_S = 64, 1.0
# Shards that are open at once, and what they may hold together to become part of the one file when it is closed.
_OPEN, _FOLDED_BYTES = 32, 256 << 20
_TABLES = """
CREATE TABLE run (record TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE block (
    number INTEGER PRIMARY KEY, num_legal INTEGER NOT NULL, pruned TEXT NOT NULL, crashed TEXT NOT NULL,
    num_rows INTEGER NOT NULL, least BLOB NOT NULL, most BLOB NOT NULL, data_sum BLOB NOT NULL,
    checksum BLOB NOT NULL, data BLOB NOT NULL
);
"""


@dataclass(slots=True)
class _Heads:
    """What was heard of shards and is not written down yet, and since when."""

    rows: list[tuple[int | str | bytes, ...]] = field(default_factory=list)
    since_s: float = 0.0


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
    _shards: dict[str, sqlite3.Connection] = field(default_factory=dict, repr=False)
    _heads: _Heads = field(default_factory=_Heads, repr=False)

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
        db = read_only(path, _TABLES)
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
            ledger = cls(path, found.run, writable(path), lock)
            ledger._adopt()
            return ledger
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

    def write(self, found: Found) -> Stored:
        """Commit a block, or where a worker keeps it; one that is there already is written anew.

        StorageError leaves the ledger as it was. Returns where it is now.
        """
        if found.stored is not None:
            heads = self._heads
            heads.since_s = heads.since_s if heads.rows else monotonic()
            heads.rows.append((*found.stored.head, found.stored.shard))
            if len(heads.rows) >= _TOGETHER or monotonic() - heads.since_s > _TOGETHER_S:
                self._write_heads()
            return found.stored
        head, data = packed(found, self.run.columns)
        stored = Stored(self.path.name, (*head, head.checksum()))
        with storing(self.path):
            self._db.execute(_REPLACE, (*stored.head, data))
        return stored

    def _write_heads(self) -> None:
        """Commit what was heard of shards: a process that is killed before finds it in them again."""
        with storing(self.path):
            if self._heads.rows:
                self._db.execute("BEGIN")
                with self._db:
                    self._db.executemany(_REPLACE, self._heads.rows)
            self._heads.rows.clear()

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
        self._write_heads()
        with guarded(self.path):
            ((number,),) = self._db.execute("SELECT count(*) FROM block")
        return int(number)

    def close(self) -> None:
        """Close it; of a run that is complete one plain file is left, that can be read where nothing can be written."""
        try:
            if self._lock is not None:
                # What cannot be tidied up now, as somebody reads it, is whole all the same.
                with suppress(sqlite3.Error, UsageError, OSError):
                    self._fold()
                    if self.num_done() == self.run.num_blocks:
                        self._db.execute("PRAGMA journal_mode = DELETE")
            for db in (self._db, *self._shards.values()):
                db.close()
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
            head, data = Head.read(row), self._plans(number, data)
            if head is not None and isinstance(data, bytes) and checksum([data]) == head.data_sum:
                yield number, (head, data)
            else:
                yield number, None

    def _plans(self, number: int, data: object) -> object:
        """The plans of a block, from the shard that has them where it is one; None where that is gone or broken."""
        if not isinstance(data, str):
            return data
        shard = shards_of(self.path) / data
        if data not in self._shards and (shard.parent != shards_of(self.path) or not shard.is_file()):
            return None
        with suppress(sqlite3.Error, UsageError):
            if data not in self._shards:
                if len(self._shards) == _OPEN:
                    self._shards.pop(next(iter(self._shards))).close()
                self._shards[data] = readable(shard, _TABLES)
            for (plans,) in self._shards[data].execute("SELECT data FROM block WHERE number = ?", (number,)):
                return plans
        return None

    def _adopt(self) -> None:
        """Take up blocks that are in shards, of which a process that was killed did not come to hear."""
        files = sorted(shards_of(self.path).glob(f"*{SUFFIX}"))
        known = {number for number, _ in self._rows("number")} if files else set[int]()
        for file in files:
            with suppress(UsageError), Ledger.open(file) as shard:
                for head in shard.heads() if shard.run == self.run else ():
                    if head.number not in known:
                        known.add(head.number)
                        self._heads.rows.append((*head, head.checksum(), file.name))
        self._write_heads()

    def _fold(self) -> None:
        """Take the plans of shards into this file, where they are not too many, so that it can be moved alone."""
        folder = shards_of(self.path)
        if not folder.is_dir() or sum(file.stat().st_size for file in folder.iterdir()) > _FOLDED_BYTES:
            return
        self._adopt()
        rows = self._db.execute("SELECT number, data FROM block WHERE typeof(data) = 'text'").fetchall()
        self._db.execute("BEGIN")
        with self._db:
            found = [(self._plans(number, data), number) for number, data in rows]
            self._db.executemany("UPDATE block SET data = ? WHERE number = ?", [one for one in found if one[0]])
        while self._shards:
            self._shards.popitem()[1].close()
        if all(plans for plans, _ in found):
            rmtree(folder)

    def _rows(self, columns: str) -> Iterator[tuple[int, Sequence[object]]]:
        """Rows in order; UsageError where numbers do not go up, or leave the space."""
        last = -1
        self._write_heads()
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


def shards_of(path: Path) -> Path:
    """Return the folder of what workers keep, beside a ledger."""
    return path.with_suffix(".shards")


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
