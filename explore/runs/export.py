"""The plans of a run as files for other programs: CSV, and Parquet through DuckDB; in order, with bounded memory."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UnknownNameError, UsageError
from ...ir.plan.words import WORDS
from ...ir.records import dataclass
from ...ir.text.shown import csv_cell
from ...ir.units import parse_typed
from ..block import Array
from ..goals import ALIASES
from .ledger import Ledger

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Conditions on the rows of a run, read from text such as `step_time_s<20s` or `recompute=none,full`.

GRAMMAR = (
    "a condition is a column, one of < <= > >= = !=, and a number with or without its unit, as in step_time_s<20s or "
    "peak_mem_bytes<=70GiB; behind = and != also a word, or several values with commas, as in recompute=none,full"
)
_CONDITION = re.compile(r"\s*([^<>=!\s]+)\s*(<=|>=|!=|==|<|>|=)\s*([^<>=!]*[^<>=!\s])\s*")
_UNITS = (("_bytes", "B"), ("_bytes_per_s", "B/s"), ("_s", "s"), ("_w", "W"), ("_usd", "USD"))


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """A column, how it must compare, and with what: one number, or any of some behind `=` and `!=`."""

    name: str
    relation: str
    values: tuple[float, ...]

    @classmethod
    def of(cls, text: str, columns: Sequence[str], words: Mapping[str, Sequence[str]]) -> ColumnCondition:
        """Read a condition on these columns, some of which stand for words.

        Raises:
            UsageError: no condition, with the grammar; a number or a unit that is none.
            UnknownNameError: a column or a word that there is not.

        >>> ColumnCondition.of("step_time_s<2min", ["step_time_s"], {})
        ColumnCondition(name='step_time_s', relation='<', values=(120.0,))
        """
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise UsageError(f"'{text}' is no condition: {GRAMMAR}")
        name, relation = match[1], match[2].replace("==", "=")
        if name not in columns:
            name = ALIASES.get(name, name)
        if name not in columns:
            raise UnknownNameError.of("column", match[1], columns)
        texts = [word.strip() for word in match[3].split(",")]
        if relation not in ("=", "!=") and (len(texts) > 1 or name in words):
            raise UsageError(f"'{text}': {relation} holds one number against another; {GRAMMAR}")
        return cls(name, relation, tuple(_value(word, name, words) for word in texts))

    def holds(self, column: Array) -> NDArray[np.bool_]:
        """Return for which numbers of the column it holds; for nan only `!=` does."""
        if self.relation in ("=", "!="):
            return np.isin(column, self.values, invert=self.relation == "!=")
        compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[self.relation]
        return np.asarray(compare(column, self.values[0]))


def _value(text: str, name: str, words: Mapping[str, Sequence[str]]) -> float:
    if name not in words:
        return parse_typed(text, _unit(name), name)
    if text not in words[name]:
        raise UnknownNameError.of(name, text, words[name])
    return float(words[name].index(text))


def _unit(name: str) -> str:
    """The unit that a column's name ends in; plain numbers where it says none."""
    if "_per_" in name and not name.endswith("_bytes_per_s"):
        return "1"
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "1")


Columns = Mapping[str, Array]
Cell = str | int | float | None
# Rows of a Parquet file that are gathered before they are written; DuckDB's own groups have as many.
_ROWS_AT_ONCE = 122_880
# Columns that are whole by what they are, and not by chance: words of a plan that count something.
_COUNTS = frozenset(name for name, row in WORDS.items() if row.kind is int)
# Integers below this are all floats.
_WHOLE = 2.0**53


class ExportTarget(Protocol):
    """Where bytes go: a file, a zipped one, stdout."""

    def write(self, data: bytes, /) -> int:
        """Take some."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which columns of which rows of a run.

    Attributes:
        ledger: of the run.
        names: of columns, in order.
        conditions: all must hold.
    """

    ledger: Ledger
    names: tuple[str, ...]
    conditions: tuple[ColumnCondition, ...]

    @classmethod
    def of(cls, ledger: Ledger, names: Sequence[str] | None, conditions: Iterable[str]) -> Selection:
        """Read what a user wants of a run; all columns where none are named.

        UnknownNameError for a column that the run does not have, UsageError for one named twice or no condition.
        """
        run = ledger.run
        for name in names or ():
            if name not in run.columns:
                raise UnknownNameError.of("column", name, run.columns)
        if names is not None and (not names or len(set(names)) < len(names)):
            raise UsageError("columns: name one or more, each once")
        read = tuple(ColumnCondition.of(text, run.columns, run.words) for text in conditions)
        return cls(ledger, run.columns if names is None else tuple(names), read)

    def tables(self) -> Iterator[Columns]:
        """Yield the rows of each block that has some, in the order of candidates; UsageError at damage."""
        for found in self.ledger.kept():
            if not found.num_rows:
                continue
            chosen = np.ones(found.num_rows, dtype=np.bool_)
            for condition in self.conditions:
                chosen &= condition.holds(found.columns[condition.name])
            if chosen.any():
                yield {name: found.columns[name][chosen] for name in self.names}


def write_csv(selection: Selection, out: ExportTarget) -> int:
    """Write rows as CSV with a heading, and return how many there are.

    Numbers have all their digits and read back as they are; whole ones have no point, and what is none is left empty.
    """
    words = selection.ledger.run.words
    _write_rows(out, [selection.names])
    num_rows = 0
    for table in selection.tables():
        columns = [cells(column, words.get(name)) for name, column in table.items()]
        _write_rows(out, zip(*columns, strict=True))
        num_rows += len(columns[0])
    return num_rows


def write_parquet(selection: Selection, path: Path) -> int:
    """Write rows as a Parquet file, and return how many there are; the file is whole or not there at all.

    Counts of a plan are integers, other numbers doubles, words are text; what was searched, and by which version, is in
    the file's metadata. Rows go through files beside the target, as large as the result. UsageError where DuckDB is
    missing or cannot write.
    """
    try:
        import duckdb
    except ImportError:
        raise UsageError("Parquet needs slipstick[results]: pip install 'slipstick[results]'; CSV does not") from None
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder, _alone() as db:
            num_rows = _write_parts(db, selection, Path(folder))
            whole = Path(folder, path.name)
            _join_parts(db, selection, Path(folder), whole)
            whole.replace(path)
    except duckdb.Error as error:
        raise UsageError(f"cannot write '{path}': {error}") from error
    return num_rows


def _alone() -> DuckDBPyConnection:
    """A database in memory, which downloads nothing."""
    import duckdb

    return duckdb.connect(
        ":memory:", config={"memory_limit": "512MB", "threads": "1", "autoinstall_known_extensions": "false"}
    )


def _write_parts(db: DuckDBPyConnection, selection: Selection, folder: Path) -> int:
    """Write rows to numbered files, one at least, so that there is a heading."""
    wanted = ", ".join(_sql(name, selection.ledger.run.words.get(name)) for name in selection.names)
    num_rows, num_parts = 0, 0
    for table in _gathered(selection):
        db.register("rows_of_part", dict(table))
        file = folder / f"part-{num_parts:06}.parquet"
        db.execute(f"COPY (SELECT {wanted} FROM rows_of_part) TO {_literal(str(file))} (FORMAT parquet)")
        db.unregister("rows_of_part")
        num_rows, num_parts = num_rows + len(next(iter(table.values()))), num_parts + 1
    return num_rows


def _gathered(selection: Selection) -> Iterator[Columns]:
    """Tables of many rows each, from those of blocks; one without rows where there are none."""
    waiting: list[Columns] = []
    num_waiting, nothing = 0, True
    for table in selection.tables():
        waiting.append(table)
        num_waiting += len(next(iter(table.values())))
        if num_waiting >= _ROWS_AT_ONCE:
            yield _stacked(waiting)
            waiting, num_waiting, nothing = [], 0, False
    if waiting:
        yield _stacked(waiting)
    elif nothing:
        yield {name: np.zeros(0) for name in selection.names}


def _stacked(tables: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _join_parts(db: DuckDBPyConnection, selection: Selection, folder: Path, whole: Path) -> None:
    """Join the parts in their order; a folder may have a name that DuckDB would take for a pattern."""
    pattern = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(folder)) + "/part-*.parquet"
    run = selection.ledger.run
    told = {
        "slipstick_version": run.tool_version,
        "slipstick_digest": run.digest,
        "slipstick_command": run.command,
        "slipstick_space": run.text,
    }
    metadata = ", ".join(f"{name}: {_literal(text)}" for name, text in told.items())
    db.execute(
        f"COPY (SELECT * FROM read_parquet({_literal(pattern)})) TO {_literal(str(whole))} "
        f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{metadata}}})"
    )


def _sql(name: str, words: Sequence[str] | None) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    if name in _COUNTS and words is None:
        return f"CASE WHEN isnan({quoted}) THEN NULL ELSE CAST({quoted} AS BIGINT) END AS {quoted}"
    if words is None:
        return quoted
    return f"([{', '.join(map(_literal, words))}])[CAST({quoted} AS INTEGER) + 1] AS {quoted}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def cells(column: Array, words: Sequence[str] | None) -> Sequence[Cell]:
    """Return a column as cells of CSV: words, integers, floats, or nothing for nan."""
    if words is not None:
        safe = [csv_cell(word) for word in words]
        return [safe[int(place)] for place in column]
    is_whole = (np.abs(column) < _WHOLE) & (np.trunc(column) == column)
    values: Sequence[float] = column.tolist()
    if not is_whole.any() and not np.isnan(column).any():
        return values
    pairs = zip(values, is_whole.tolist(), strict=True)
    return [int(value) if whole else None if value != value else value for value, whole in pairs]


def _write_rows(out: ExportTarget, rows: Iterable[Sequence[Cell]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    out.write(text.getvalue().encode())
