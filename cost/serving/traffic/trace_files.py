"""Traces of requests from files: CSV and JSON lines, under the column names that public traces use.

Known: our own (`arrival_s,prompt,output,cached,session`), Vidur's (`arrived_at,num_prefill_tokens,num_decode_tokens`),
Azure's LLM inference traces (`TIMESTAMP,ContextTokens,GeneratedTokens`, dates), BurstGPT's (`Timestamp,Request
tokens,Response tokens`, seconds), and Mooncake's JSON lines (`timestamp` in ms, `input_length`, `output_length`, and
`hash_ids`, names of blocks of 512 tokens).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from ....ir.errors import ParseError, UsageError
from ....ir.records import dataclass
from ....ir.text.formats import read_json, table_lines
from ....ir.text.untrusted import read_text
from ....ir.units import number_of
from .clocks import UNITS, has_zone, read_moment, read_number, seconds_behind_first, unit_of
from .sizes import MOST_TOKENS, DrawnRequests, Requests
from .traffic import Index, Traffic, check_traffic

_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "arrival": (*(f"{word}_{unit}" for word in ("arrival", "timestamp") for unit in UNITS), "timestamp",
                    "arrived_at", "arrival", "arrival_time"),
        "prompt": ("prompt", "prompt_tokens", "input_tokens", "input_length", "input_len", "num_prefill_tokens",
                   "contexttokens", "request tokens"),
        "output": ("output", "output_tokens", "output_length", "output_len", "num_decode_tokens", "generatedtokens",
                   "response tokens"),
        "cached": ("cached", "cached_tokens", "num_cached_tokens"),
        "session": ("session", "session_id"),
        "blocks": ("hash_ids",),
    }
)  # fmt: skip
_LINES = {".jsonl", ".ndjson"}
_Cell = TypeVar("_Cell")


@dataclass(frozen=True, slots=True)
class _Table:
    """A file as rows by column name, with the line that each row began on."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    lines: Sequence[int]

    def name(self, kind: str) -> str:
        """The column of a kind, or nothing; UsageError where there are several, of which one would be left out."""
        columns = [column for column in self.columns if column.strip().lower() in _NAMES[kind]]
        if len(columns) > 1:
            raise UsageError(f"{self.path}, line 1: {len(columns)} columns for {kind}: {', '.join(columns)}; keep one")
        return "".join(columns)

    def needed(self, kind: str) -> str:
        """The column of a kind; UsageError where there is none."""
        if found := self.name(kind):
            return found
        given, allowed = ", ".join(self.columns), ", ".join(_NAMES[kind])
        raise UsageError(f"{self.path} has no column for {kind}: it has {given}, and looked for are {allowed}")

    def read(self, column: str, what: str, read: Callable[[str], _Cell]) -> list[_Cell]:
        """The cells of a column; UsageError with the line of the first that cannot be read."""
        found = []
        for row, line in zip(self.rows, self.lines, strict=True):
            try:
                found.append(read(row[column]))
            except ValueError:
                raise UsageError(f"{self.path}, line {line}: {column} is '{row[column][:60]}', not {what}") from None
        return found

    def tokens(self, column: str) -> Index:
        """A column of whole numbers; zeros where there is no such column."""
        if not column:
            return np.zeros(len(self.rows), dtype=np.int64)
        return np.array(self.read(column, f"a whole number up to {MOST_TOKENS:,}", _whole), dtype=np.int64)

    def requests(self) -> Requests:
        """The tokens of each row."""
        columns = (self.needed("prompt"), self.needed("output"), self.name("cached"))
        return Requests(*(self.tokens(column) for column in columns))

    def named(self, row: int) -> str:
        """What a message calls a row."""
        return f"{self.path}, line {self.lines[row]}: the request"


def read_trace(path: Path, speed: float = 1.0) -> Traffic:
    """Return the requests of a trace; at twice the `speed` they come in half the time.

    Times count from the first of them. Numbers are seconds, or what the end of their column says: `_ms`, `_us`, `_ns`;
    `timestamp` in JSON lines is in milliseconds.

    UsageError: no such file, no requests, columns that are missing, cells that are no numbers, negative times, times
    out of order, requests without tokens, each with its line; or more than ten years from first to last.
    """
    if not speed > 0:
        raise UsageError(f"the speed of a trace must be above 0, and is {speed:g}")
    table = _read(path)
    (stamps, unit), requests = _stamps(table), table.requests()
    scale = UNITS[unit or "s"]
    check_traffic(np.array([float(stamp * scale) for stamp in stamps]), requests, table.named)
    arrival_s = seconds_behind_first(stamps, unit, f"{path}: {table.needed('arrival')}")
    # Stamps of a long clock that lie closer together than floats do.
    check_traffic(arrival_s, requests, table.named)
    blocks, names = None, table.name("blocks")
    if names:
        blocks = table.read(names, "whole numbers", lambda text: tuple(map(int, text.split())))
    return Traffic(arrival_s / speed, requests, session=_sessions(table), blocks=blocks)


def read_sizes(path: Path) -> DrawnRequests:
    """Return the lengths of the requests of a file, whose times, if it has any, are not looked at."""
    table = _read(path)
    requests = table.requests()
    check_traffic(np.zeros(len(requests.prompt)), requests, table.named)
    return DrawnRequests(requests)


def _read(path: Path) -> _Table:
    try:
        lines = table_lines(read_text(path), str(path))
        table = _json_lines(path, lines) if path.suffix in _LINES else _csv(path, lines)
    except (OSError, csv.Error) as error:
        raise UsageError(f"the trace {path} cannot be read: {error}") from None
    if not table.rows:
        raise UsageError(f"{path} has no requests")
    return table


def _csv(path: Path, file: Iterable[str]) -> _Table:
    reader = csv.reader(file)
    columns = tuple(next(reader, ()))
    rows, lines = [], []
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(columns):
            raise UsageError(f"{path}, line {reader.line_num}: {len(cells)} cells, and the header has {len(columns)}")
        rows.append(dict(zip(columns, cells, strict=True)))
        lines.append(reader.line_num)
    return _Table(path, columns, rows, lines)


def _json_lines(path: Path, file: Iterable[str]) -> _Table:
    rows, lines = [], []
    for number, line in enumerate(file, 1):
        if line.strip():
            rows.append(_record(path, number, line))
            lines.append(number)
    columns = tuple(rows[0]) if rows else ()
    if (bad := next((i for i, row in enumerate(rows) if tuple(row) != columns), None)) is not None:
        raise UsageError(f"{path}, line {lines[bad]}: fields are {', '.join(rows[bad])}, and were {', '.join(columns)}")
    return _Table(path, columns, rows, lines)


def _record(path: Path, number: int, line: str) -> Mapping[str, str]:
    """One object as text by name; what is no number or word of its own is not a length, and is left out."""
    try:
        found = read_json(line, f"{path}, line {number}", exact=True)
    except ParseError as error:
        raise UsageError(f"{path}, line {number}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}, line {number}: not an object: {line.strip()[:40]}")
    plain = {str(key): str(value) for key, value in found.items() if isinstance(value, int | float | str | Decimal)}
    if isinstance(names := found.get("hash_ids"), list):
        plain["hash_ids"] = " ".join(map(str, names))
    # Mooncake's timestamps are milliseconds; everything else says its unit or is in seconds.
    return {"timestamp_ms" if key == "timestamp" else key: value for key, value in plain.items()}


def _stamps(table: _Table) -> tuple[Sequence[Decimal], str]:
    """The times of a table as they stand there, dates from the first of them on, and their unit, none of dates."""
    column = table.needed("arrival")
    if not any(mark in table.rows[0][column] for mark in ":T"):
        return table.read(column, "a number", read_number), unit_of(column)
    read = partial(read_moment, has_zone=has_zone(table.rows[0][column]))
    moments = table.read(column, "a date like the first", read)
    return [moment - moments[0] for moment in moments], ""


def _sessions(table: _Table) -> Index | None:
    """Numbers of the sessions by first appearance; a row that names none is alone."""
    if not (column := table.name("session")):
        return None
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(r[column], len(numbers)) if r[column] else -1 for r in table.rows])


def _whole(text: str) -> int:
    number = number_of(text)
    if not number.is_integer() or abs(number) > MOST_TOKENS:
        raise ValueError
    return int(number)
