"""A result as a file whose suffix says its form: JSON, CSV, Parquet, Markdown, a page, or the screen as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ...ir.errors import UsageError
from ...ir.text.shown import csv_cell
from .table import Cell, Columns

# The first suffix of a form is the one that errors name.
SUFFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "json": (".json",),
        "csv": (".csv",),
        "parquet": (".parquet",),
        "md": (".md", ".markdown"),
        "html": (".html", ".htm"),
        "svg": (".svg",),
        "png": (".png",),
        "table": (".txt",),
    }
)
_GZIPPED = ".gz"
# Forms that are no text, and packed already.
_BINARY = ("parquet", "png")
# The largest whole number of a column of 64 bits.
_LARGEST = 2**63 - 1


def form_of_file(path: str, forms: Sequence[str]) -> str:
    """Return the form that the suffix of a file says; UsageError with those there are.

    >>> form_of_file("a.json.gz", ["json", "csv"])
    'json'
    """
    name = Path(path.removesuffix(_GZIPPED)).suffix.lower()
    found = next((form for form in forms if name in SUFFIXES[form]), None)
    if found is None or (found in _BINARY and path.endswith(_GZIPPED)):
        allowed = ", ".join(SUFFIXES[form][0] for form in forms)
        given = f"cannot write '{Path(path).suffix}'" if Path(path).suffix else "the name needs a suffix"
        raise UsageError(f"'{path}': {given}; formats of this result: {allowed}")
    return found


def csv_text(columns: Columns) -> str:
    """Return columns as CSV with a heading; numbers have all their digits, and nothing stands for None.

    What a spreadsheet would take for a formula is text in it: see `csv_cell`.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    rows = zip(*columns.values(), strict=True)
    writer.writerows([csv_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return out.getvalue()


def write_parquet(columns: Columns, path: Path) -> None:
    """Write columns as Parquet: whole numbers as integers, switches as booleans, words as text.

    UsageError where DuckDB is missing or cannot write.
    """
    try:
        import duckdb
    except ImportError:
        raise UsageError("Parquet needs slipstick[results]: pip install 'slipstick[results]'; CSV does not") from None
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    types = ", ".join(f"{_quoted(name)}: '{_type_of(values)}'" for name, values in columns.items())
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        text, whole = Path(folder, "rows.csv"), Path(folder, "rows.parquet")
        text.write_text(csv_text(columns), encoding="utf-8", errors="backslashreplace")
        try:
            with duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"}) as db:
                db.execute(
                    f"COPY (SELECT * FROM read_csv({_quoted(str(text))}, header=true, delim=',', quote='\"', "
                    f"escape='\"', nullstr='', parallel=false, columns={{{types}}})) TO {_quoted(str(whole))} "
                    "(FORMAT parquet, COMPRESSION zstd)"
                )
        except duckdb.Error as error:
            raise UsageError(f"cannot write '{path}': {error}") from error
        whole.replace(path)


def _type_of(values: Sequence[Cell]) -> str:
    """Return the type of a column by all its values; a whole number among fractions is one of them."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "BOOLEAN"
    if any(isinstance(value, str | bool) for value in known) or not known:
        return "VARCHAR"
    whole = all(isinstance(value, int) and abs(value) <= _LARGEST for value in known)
    return "BIGINT" if whole else "DOUBLE"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
