"""Reports of Nsight Systems, exported to SQLite, as the events of a trace: what `nsys export --type sqlite` writes.

Tables and columns are those of NVIDIA's "SQLite Export Schema Reference". Ranges of NVTX stand for operators: those of
`torch.autograd.profiler.emit_nvtx` name the operator, and its sizes with `record_shapes=True`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from ...ir.errors import NotUnderstoodError
from ...ir.text.databases import ForeignTables, open_tables
from ...ir.text.limits import limits
from ...ir.text.untrusted import open_regular
from .columns import OPTIMIZER, STEP

HEADER = b"SQLite format 3\0"
_KERNELS, _LAUNCHES, _RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_TEXTS = "StringIds"
_COPIES = {"CUPTI_ACTIVITY_KIND_MEMCPY": "gpu_memcpy", "CUPTI_ACTIVITY_KIND_MEMSET": "gpu_memset"}
# Ranges that are pushed and popped nest as calls do; NVTX_EVENTS.eventType of `NvtxPushPopRange`.
_PUSHED = 59
# What people, Megatron-LM and MLPerf's codes call a step.
_STEPS = re.compile(r"(?:train[ _])?(?:step|iteration|iter)[ _:#]*([0-9]+)$", re.IGNORECASE)
_SIZES = re.compile(r", sizes = (\[.*\])")
# A number of a thread is that of its process in the bits above these.
_THREAD_BITS = 24


def is_report(path: Path) -> bool:
    """Whether a file is a database of SQLite."""
    with open_regular(path) as file:
        return file.read(len(HEADER)) == HEADER


def report_events(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield what the first device of a report ran, with launches and ranges of its process.

    NotUnderstoodError for a database that is no such report, and for one whose tables are views or computed.
    """
    with open_tables(path, "report of Nsight Systems") as tables:
        yield from _Report(tables).events()


class _Report:
    """The tables of one report."""

    def __init__(self, tables: ForeignTables) -> None:
        self._rows, self._path = tables.rows, tables.path
        known = (_KERNELS, _LAUNCHES, _RANGES, _TEXTS, *_COPIES)
        self._columns = {table: tables.columns(table) for table in tables.names().intersection(known)}
        if _KERNELS not in self._columns:
            raise self._no_kernels()

    def _no_kernels(self) -> NotUnderstoodError:
        return NotUnderstoodError(
            f"{self._path}: the report holds no kernels: profile with --trace=cuda,nvtx, and export with "
            "`nsys export --type sqlite`"
        )

    def _check_whole(self, table: str, names: Sequence[str], where: str = "TRUE") -> None:
        """Refuse a table with anything but whole numbers in a column: SQLite lets a cell be what its column is not."""
        odd = " OR ".join(f"typeof({name}) != 'integer'" for name in names)
        for found in self._rows(f"SELECT {', '.join(names)} FROM {table} WHERE ({where}) AND ({odd}) LIMIT 1"):
            raise NotUnderstoodError(
                f"{self._path}: {table} has {str(found)[:80]} for {', '.join(names)}: whole numbers are needed"
            )

    def events(self) -> Iterator[Mapping[str, object]]:
        """Yield events in the form of torch.profiler's, kernels first."""
        texts = dict[object, object]()
        if _TEXTS in self._columns:
            pairs = self._rows(f"SELECT id, value FROM {_TEXTS}", most=limits().document_bytes)
            texts.update((key, text) for key, text in pairs)
        owned = "globalPid" in self._columns[_KERNELS]
        self._check_whole(_KERNELS, ("start", "end", "deviceId", *(("globalPid",) if owned else ())))
        ((device, origin),) = self._rows(f"SELECT MIN(deviceId), MIN(start) FROM {_KERNELS}")
        if device is None:
            raise self._no_kernels()
        # Whole numbers of ns since 1970 are more than a float holds.
        times = f"start - {origin}, end - {origin}"
        process = None
        if owned:
            # The process of the device that ran most; numbers of launches are a process's own.
            found = f"SELECT globalPid FROM {_KERNELS} WHERE deviceId = ? GROUP BY globalPid ORDER BY COUNT(*) DESC"
            process = cast(int, next(iter(self._rows(found, (device,))))[0])
        name = "demangledName" if "demangledName" in self._columns[_KERNELS] else "shortName"
        kernels = self._rows(
            f"SELECT {times}, streamId, correlationId, {name}, {'globalPid' if owned else 'NULL'} FROM {_KERNELS} "
            "WHERE deviceId = ?",
            (device,),
        )
        for start, end, stream, link, text, pid in cast(
            Iterator[tuple[int, int, object, object, object, int]], kernels
        ):
            if pid == process:
                yield _event("kernel", str(texts.get(text, text)), start, end, {"correlation": link, "stream": stream})
        for table in _COPIES.keys() & self._columns.keys():
            self._check_whole(table, ("start", "end"))
            kind = "copyKind" if "copyKind" in self._columns[table] else "NULL"
            rows = self._rows(
                f"SELECT {times}, streamId, correlationId, {kind} FROM {table} WHERE deviceId = ?", (device,)
            )
            for start, end, stream, link, way in cast(Iterator[tuple[int, int, object, object, object]], rows):
                label = f"{'Memset' if way is None else 'Memcpy'} {'' if way is None else way}".strip()
                yield _event(_COPIES[table], label, start, end, {"correlation": link, "stream": stream})
        if _LAUNCHES in self._columns:
            self._check_whole(_LAUNCHES, ("start", "end", "globalTid"))
            rows = self._rows(f"SELECT {times}, correlationId, globalTid FROM {_LAUNCHES}")
            for start, end, link, thread in cast(Iterator[tuple[int, int, object, int]], rows):
                if process is None or thread >> _THREAD_BITS == process >> _THREAD_BITS:
                    yield _event("cuda_runtime", "launch", start, end, {"correlation": link}, thread)
        if _RANGES in self._columns:
            yield from self._ranges(texts, process, times)

    def _ranges(
        self, texts: Mapping[object, object], process: int | None, times: str
    ) -> Iterator[Mapping[str, object]]:
        text = "COALESCE(text, textId)" if "textId" in self._columns[_RANGES] else "text"
        pushed = f"eventType = {_PUSHED} AND end IS NOT NULL"
        self._check_whole(_RANGES, ("start", "end", "globalTid"), pushed)
        rows = self._rows(f"SELECT {times}, {text}, globalTid FROM {_RANGES} WHERE {pushed}")
        for start, end, said, thread in cast(Iterator[tuple[int, int, object, int]], rows):
            if process is None or thread >> _THREAD_BITS == process >> _THREAD_BITS:
                yield _range(str(texts.get(said, said)), start, end, thread)


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
