"""Files of measurements into rows; a row that cannot be read is told with its line, and the others are read."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...ir.errors import UsageError, did_you_mean
from ...ir.records import dataclass
from ...ir.text.formats import table_lines
from ...ir.text.untrusted import read_text
from .publication_files import publications_beside
from .rows import ABOVE_ZERO, MOST, Row

# What a message lists at most; the rest is counted.
MOST_FAULTS = 50
# Columns that hold nothing but numbers, none of them negative; other columns are text or a table's own.
NUMBERS = frozenset(
    (
        "batch", "m", "n", "k", "time_us", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "kv_cache_bytes",
        "rows", "cols", "n_elements", "bytes_moved_min", "n_gpus", "n_nodes", "gpus_per_node_used", "size_bytes",
        "ep", "tp", "pp", "cp", "dp", "etp", "vpp", "tokens_per_gpu", "m_per_group", "n_groups", "hidden",
        "inter_size", "n_experts", "topk", "bandwidth_gb_per_s", "sms_used", "layers", "ffn_hidden", "vocab",
        "moe_ffn_hidden", "shared_expert_ffn", "seq_len", "layers_per_virtual_stage", "micro_batch", "global_batch",
        "peak_allocated_bytes", "peak_reserved_bytes", "peak_reserved_gib", "batch_or_concurrency", "input_tokens",
        "output_tokens", "moe_tp", "attention_dp", "prefill_batch", "prefill_workers", "prefill_tp", "prefill_ep",
        "decode_batch", "decode_workers", "decode_tp", "decode_ep", "ttft_ms", "tpot_ms", "total_latency_ms",
        "output_tokens_per_s_total",
    )
)  # fmt: skip
# A measured time or size of nothing divides by zero.
POSITIVE = frozenset(
    (
        "time_us",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "peak_reserved_gib",
        "ttft_ms",
        "tpot_ms",
        "total_latency_ms",
        "output_tokens_per_s_total",
    )
)


@dataclass(frozen=True, slots=True)
class Table:
    """A file of measurements: its columns and its rows, in order; `bad` are rows of other cells than its columns."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    bad: tuple[RowFault, ...] = ()

    def without(self, faults: Iterable[RowFault]) -> Table:
        """Return the table without rows that cannot be read."""
        lines = {fault.row.line for fault in faults if fault.path == self.path}
        return replace(self, rows=tuple(row for row in self.rows if row.line not in lines))


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row that cannot be read, and why."""

    path: Path
    row: Row
    why: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.row.line}: {self.why}"


def read_table(path: Path, faults: list[str]) -> Table:
    """Read a file; what is wrong with the whole of it is added to `faults`.

    Raises:
        UsageError: it cannot be read at all.
    """
    try:
        lines = _lines(table_lines(read_text(path), str(path)))
        header = tuple(name.strip() for name in next(lines, (1, []))[1])
        bad: list[RowFault] = []
        rows = tuple(_rows(path, header, lines, bad))
    except (OSError, csv.Error) as error:
        raise UsageError(f"cannot read '{path}' as a table: {_plain(error)}") from error
    repeated = [name for name, times in Counter(header).items() if times > 1]
    if repeated:
        faults.append(f"{path}, line 1: column given twice: {', '.join(repeated)}")
    if not rows:
        faults.append(f"{path} is empty" if not header else f"{path} holds no rows, only a header")
    source_of = publications_beside(path, {*header, *NUMBERS}, [row.text("dataset") for row in rows])
    rows = tuple(replace(row, source=source_of(row.text("dataset"))) for row in rows)
    return Table(path, header, rows, tuple(bad))


def raise_all(faults: Sequence[object]) -> None:
    """Raise one UsageError for all that was found, if anything was."""
    if not faults:
        return
    if len(faults) == 1:
        raise UsageError(str(faults[0]))
    more = [f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
    raise UsageError("\n  ".join([f"{len(faults)} faults:", *map(str, faults[:MOST_FAULTS]), *more]))


def cell_faults(table: Table) -> Iterator[RowFault]:
    """Yield rows of other cells than columns, and what is no number where a number belongs: file, line and column."""
    yield from table.bad
    columns = [name for name in table.columns if name in NUMBERS]
    for row in table.without(table.bad).rows:
        for name in columns:
            wrong = _wrong(row, name)
            if wrong:
                yield RowFault(table.path, row, wrong)


def nearest_kind(table: Table, kinds: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return the kind of table, each given with the columns it needs, that most columns speak for.

    Raises:
        UsageError: no kind has all it needs; says what the nearest lacks.
    """
    fitting = [(len(needed), name) for name, needed in kinds if set(needed) <= set(table.columns)]
    if fitting:
        return max(fitting)[1]
    lacking = {name: [c for c in needed if c not in table.columns] for name, needed in kinds}
    name = min(lacking, key=lambda n: (len(lacking[n]) / len(dict(kinds)[n]), n))
    near = did_you_mean(lacking[name][0], table.columns).removeprefix(";")
    raise UsageError(
        f"{table.path}, line 1: no known kind of table; nearest: {name}, which needs the columns "
        f"{', '.join(lacking[name])} as well;{near} kinds: {', '.join(sorted(lacking))} "
        "(docs/validation.md lists their columns)"
    )


def _lines(file: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield records with the line they begin on; cells in quotes may span lines."""
    reader, line = csv.reader(file), 1
    for cells in reader:
        if cells:
            yield line, cells
        line = reader.line_num + 1


def _rows(
    path: Path, header: Sequence[str], lines: Iterator[tuple[int, list[str]]], bad: list[RowFault]
) -> Iterator[Row]:
    for line, cells in lines:
        row = Row({name: cells[place] if place < len(cells) else "" for place, name in enumerate(header)}, line)
        if len(cells) != len(header):
            bad.append(RowFault(path, row, f"{len(cells)} cells under {len(header)} columns"))
        yield row


def _wrong(row: Row, column: str) -> str | None:
    try:
        number = row.measured(column, ABOVE_ZERO if column in POSITIVE else 0.0)
    except UsageError as error:
        return str(error)
    if number is not None and number > MOST:
        return f"row '{row.id}', column '{column}': {row.text(column)} must be at most {MOST:.2g}"
    return None


def _plain(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
