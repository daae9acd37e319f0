"""How near predictions came to measurements, as the package knows it: a table by kind of kernel, chip and library.

`slipstick validate ... --accuracy backends/calibration/accuracy.csv` writes it from the rows that judge, to which no
constant was fitted. A `*` stands for all of a column: quantiles over several kinds are there and need not be guessed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from .. import backends
from ..ir.records import dataclass

ANY = "*"
COLUMNS = ("table", "chip", "library", "kind", "rows", "median", "p90")
Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class RowAccuracy:
    """Errors of some judged rows: median and 90th percentile of their size, as fractions.

    `table`, `chip`, `library` and `kind` say which rows; `*` for all.
    """

    table: str
    chip: str
    library: str
    kind: str
    num_rows: int
    median: float
    p90: float

    @property
    def of_chip(self) -> bool:
        """Whether the rows are of one chip."""
        return self.chip != ANY

    def __str__(self) -> str:
        of = " ".join(word for word in (self.table, self.kind, self.library) if word != ANY)
        where = f"on {self.chip}" if self.of_chip else "on other chips (not validated on this one)"
        return f"{of} {where}: median {self.median:.1%}, p90 {self.p90:.1%} of {self.num_rows} rows"


def keys_of(table: str, chip: str, library: str, kind: str) -> tuple[Key, ...]:
    """Return the lines of the table that a row counts in, the nearest first: the order in which one is looked for.

    >>> keys_of("gemm", "H100", "pytorch", "bf16")[1:3]
    (('gemm', 'H100', '*', 'bf16'), ('gemm', 'H100', '*', '*'))
    """
    return (
        (table, chip, library, kind),
        (table, chip, ANY, kind),
        (table, chip, ANY, ANY),
        (table, ANY, library, kind),
        (table, ANY, ANY, kind),
        (table, ANY, ANY, ANY),
    )


def nearest(table: str, chip: str, library: str, kinds: Sequence[str]) -> RowAccuracy | None:
    """Return the line that comes nearest to a kernel, of the chip before those of others; None where nothing is known.

    Args:
        table: the kind of measurements: `gemm`, `collectives`.
        chip: the chip's own name, `H100-SXM5-80GB`.
        library: whose kernels run.
        kinds: names of the kind of kernel, the best first.
    """
    known = packaged()
    wanted = [keys_of(table, chip, library, kind) for kind in kinds or (ANY,)]
    return next((known[key] for level in zip(*wanted, strict=True) for key in level if key in known), None)


@cache
def packaged() -> Mapping[Key, RowAccuracy]:
    """Return the table that comes with the package."""
    file = Path(backends.__path__[0]) / "calibration" / "accuracy.csv"
    return MappingProxyType(dict(_read(file.read_text(encoding="utf-8"))))


def _read(text: str) -> Iterator[tuple[Key, RowAccuracy]]:
    for row in csv.DictReader(text.splitlines()):
        key = (row["table"], row["chip"], row["library"], row["kind"])
        yield key, RowAccuracy(*key, int(row["rows"]), float(row["median"]), float(row["p90"]))


def written(lines: Iterable[RowAccuracy]) -> str:
    """Return lines as the file that `packaged` reads, fractions to four places."""
    rows = [(a.table, a.chip, a.library, a.kind, str(a.num_rows), f"{a.median:.4f}", f"{a.p90:.4f}") for a in lines]
    return "".join(f"{','.join(row)}\n" for row in [COLUMNS, *sorted(rows)])
