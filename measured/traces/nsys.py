"""Reports of Nsight Systems, exported to SQLite, as the events of a trace: what `nsys export --type sqlite` writes.

Tables and columns are those of NVIDIA's "SQLite Export Schema Reference". Ranges of NVTX stand for operators: those of
`torch.autograd.profiler.emit_nvtx` name the operator, and its sizes with `record_shapes=True`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ...ir.errors import NotUnderstoodError
from ...ir.text.untrusted import open_regular
from .columns import OPTIMIZER, STEP

HEADER = b"SQLite format 3\0"
_KERNELS, _LAUNCHES, _RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_COPIES = {"CUPTI_ACTIVITY_KIND_MEMCPY": "gpu_memcpy", "CUPTI_ACTIVITY_KIND_MEMSET": "gpu_memset"}
# Ranges that are pushed and popped nest as calls do; NVTX_EVENTS.eventType of `NvtxPushPopRange`.
_PUSHED = 59
# What people, Megatron-LM and MLPerf's codes call a step.
_STEPS = re.compile(r"(?:train[ _])?(?:step|iteration|iter)[ _:#]*(\d+)$", re.IGNORECASE)
_SIZES = re.compile(r", sizes = (\[.*\])")
# A number of a thread is that of its process in the bits above these.
_THREAD_BITS = 24
# Instructions of SQLite's machine that one report may take: some hundred a row of the largest.
_MOST_TICKS, _TICK = 20_000, 1_000_000


def is_report(path: Path) -> bool:
    """Whether a file is a database of SQLite."""
    with open_regular(path) as file:
        return file.read(len(HEADER)) == HEADER


def report_events(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield what the first device of a report ran, with launches and ranges of its process.

    NotUnderstoodError for a database that is no such report, and for one whose tables are views.
    """
    # Nothing is written, and nothing that a database brings with it is run.
    with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)) as db:
        ticks = iter(range(_MOST_TICKS))
        db.set_progress_handler(lambda: next(ticks, None) is None, _TICK)
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            yield from _Report(db, path).events()
        # What SQLite says of a damaged text holds its bytes, which need be no text.
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise NotUnderstoodError(f"{path}: no report of Nsight Systems can be read of it: {error}") from None


class _Report:
    """The tables of one report."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db, self._path = db, path
        rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
        self._tables = {str(name) for (name,) in rows}
        if _KERNELS not in self._tables:
            raise self._no_kernels()

    def _no_kernels(self) -> NotUnderstoodError:
        return NotUnderstoodError(
            f"{self._path}: the report holds no kernels: profile with --trace=cuda,nvtx, and export with "
            "`nsys export --type sqlite`"
        )

    def _check_whole(self, table: str, names: Sequence[str], where: str = "TRUE") -> None:
        """Refuse a table with anything but whole numbers in a column: SQLite lets a cell be what its column is not."""
        odd = " OR ".join(f"typeof({name}) != 'integer'" for name in names)
        found = self._db.execute(
            f"SELECT {', '.join(names)} FROM {table} WHERE ({where}) AND ({odd}) LIMIT 1"
        ).fetchone()
        if found is not None:
            raise NotUnderstoodError(
                f"{self._path}: {table} has {str(found)[:80]} for {', '.join(names)}: whole numbers are needed"
            )

    def events(self) -> Iterator[Mapping[str, object]]:
        """Yield events in the form of torch.profiler's, kernels first."""
        texts = dict(self._db.execute("SELECT id, value FROM StringIds")) if "StringIds" in self._tables else {}
        device = self._db.execute(f"SELECT MIN(deviceId) FROM {_KERNELS}").fetchone()[0]
        if device is None:
            raise self._no_kernels()
        owned = "globalPid" in self._columns(_KERNELS)
        self._check_whole(_KERNELS, ("start", "end", "deviceId", *(("globalPid",) if owned else ())))
        process = None
        if owned:
            # The process of the device that ran most; numbers of launches are a process's own.
            found = f"SELECT globalPid FROM {_KERNELS} WHERE deviceId = ? GROUP BY globalPid ORDER BY COUNT(*) DESC"
            process = self._db.execute(found, (device,)).fetchone()[0]
        name = "demangledName" if "demangledName" in self._columns(_KERNELS) else "shortName"
        for start, end, stream, link, text, pid in self._db.execute(
            f"SELECT start, end, streamId, correlationId, {name}, {'globalPid' if owned else 'NULL'} FROM {_KERNELS} "
            "WHERE deviceId = ?",
            (device,),
        ):
            if pid == process:
                yield _event("kernel", str(texts.get(text, text)), start, end, {"correlation": link, "stream": stream})
        for table in _COPIES.keys() & self._tables:
            self._check_whole(table, ("start", "end"))
            kind = "copyKind" if "copyKind" in self._columns(table) else "NULL"
            rows = self._db.execute(
                f"SELECT start, end, streamId, correlationId, {kind} FROM {table} WHERE deviceId = ?", (device,)
            )
            for start, end, stream, link, way in rows:
                label = f"{'Memset' if way is None else 'Memcpy'} {'' if way is None else way}".strip()
                yield _event(_COPIES[table], label, start, end, {"correlation": link, "stream": stream})
        if _LAUNCHES in self._tables:
            self._check_whole(_LAUNCHES, ("start", "end", "globalTid"))
            rows = self._db.execute(f"SELECT start, end, correlationId, globalTid FROM {_LAUNCHES}")
            for start, end, link, thread in rows:
                if process is None or thread >> _THREAD_BITS == process >> _THREAD_BITS:
                    yield _event("cuda_runtime", "launch", start, end, {"correlation": link}, thread)
        if _RANGES in self._tables:
            yield from self._ranges(texts, process)

    def _ranges(self, texts: Mapping[object, object], process: int | None) -> Iterator[Mapping[str, object]]:
        text = "COALESCE(text, textId)" if "textId" in self._columns(_RANGES) else "text"
        pushed = f"eventType = {_PUSHED} AND end IS NOT NULL"
        self._check_whole(_RANGES, ("start", "end", "globalTid"), pushed)
        rows = self._db.execute(f"SELECT start, end, {text}, globalTid FROM {_RANGES} WHERE {pushed}")
        for start, end, said, thread in rows:
            if process is None or thread >> _THREAD_BITS == process >> _THREAD_BITS:
                yield _range(str(texts.get(said, said)), start, end, thread)

    def _columns(self, table: str) -> set[str]:
        return {str(row[1]) for row in self._db.execute(f"PRAGMA table_info({table})")}


def _range(text: str, start: int, end: int, thread: int) -> Mapping[str, object]:
    """Return a range as the mark or the operator that it stands for."""
    step = _STEPS.match(text.strip())
    if step is not None or text.startswith(STEP):
        return _event("user_annotation", f"{STEP}{step[1]}" if step is not None else text, start, end, {}, thread)
    if text.startswith(OPTIMIZER):
        return _event("user_annotation", text.partition(",")[0], start, end, {}, thread)
    args: dict[str, object] = {}
    if sizes := _SIZES.search(text):
        try:
            args["Input Dims"] = json.loads(sizes[1])
        except (ValueError, RecursionError):
            args = {}
    return _event("cpu_op", text.partition(", ")[0], start, end, args, thread)


def _event(
    category: str, name: str, start: int, end: int, args: Mapping[str, object], thread: int = 0
) -> Mapping[str, object]:
    times = {"ts": start * 1e-3, "dur": (end - start) * 1e-3}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread, **times, "args": args}
