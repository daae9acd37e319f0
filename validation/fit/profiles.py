"""Software that says what a fit may move, the rows that the fit is about, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Generic, TypeVar

from ...backends.machine.files.catalogue import File
from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ..judge import read_tables
from ..results.statistics import Accuracy
from ..rows.split import ALL, in_first_half
from ..rows.tables import Table, raise_all

Report = Callable[[str], None]
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Profile:
    """A stack or an engine that says what is free.

    Attributes:
        name: as it was asked for: a name of the catalogue, or a path.
        data_sets: whose rows move its numbers.
        free: paths of the numbers.
        file: where it was read.
    """

    name: str
    data_sets: tuple[str, ...]
    free: tuple[str, ...]
    file: File


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """One number that was fitted: its path, what it was before, what it is now, in base units."""

    path: str
    before: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFit:
    """The numbers of one profile as fitted, and how near measurements with it come.

    Attributes:
        profile: whose numbers.
        chip: on which chip, empty where they are those of any.
        numbers: what was fitted.
        untold: paths of numbers that no measurement depends on; they stay.
        together: names of the profiles that shared the fit.
        data_sets: those of the rows that moved the numbers.
        split: `half` of the configurations, or `all` of them.
        fit: accuracy on what was fitted.
        judged: accuracy on the others of the same data sets, None where there are none.
        num_excluded: documented outliers among the rows, in no fit.
    """

    profile: Profile
    chip: str = ""
    numbers: tuple[FittedNumber, ...]
    untold: tuple[str, ...]
    together: tuple[str, ...] = ()
    data_sets: tuple[str, ...]
    split: str
    fit: Accuracy
    judged: Accuracy | None
    num_excluded: int


@dataclass(slots=True)
class MeasuredRows(Generic[C]):
    """Cases that are fitted, that only judge, and that are documented outliers."""

    seen: list[C] = field(default_factory=list)
    judging: list[C] = field(default_factory=list)
    excluded: list[C] = field(default_factory=list)

    def add(self, case: C, outlier: str, fits: bool) -> None:
        """Put a case where it belongs."""
        (self.excluded if outlier else self.seen if fits else self.judging).append(case)


def is_fitted(table: str, group: str, split: str) -> bool:
    """Whether a fit to a split of a kind of table sees a configuration."""
    return split == ALL or in_first_half(table, group)


def tables_of(paths: Sequence[Path], kind: str, refusal: str, data_sets: Sequence[str]) -> list[Table]:
    """Read tables of a kind with their rows of some data sets.

    UsageError for a table of another kind, with the `refusal`, and for data sets that are not there or only judge.
    """
    tables, kinds = read_tables(paths)
    pairs = zip(tables, kinds, strict=True)
    raise_all(
        [f"{t.path}: {refusal}, and this one is of kind {other.name}" for t, other in pairs if other.name != kind]
    )
    sources = {row.dataset: row.source for table in tables for row in table.rows}
    if judging := sorted(name for name in data_sets if name in sources and sources[name].judges_only):
        raise UsageError(f"{', '.join(judging)} only judges: no number is fitted to it")
    for name in data_sets:
        if name not in sources:
            raise UnknownNameError.of("data set to fit", name, sources)
    wanted = (tuple(row for row in table.rows if row.dataset in data_sets) for table in tables)
    return [Table(table.path, table.columns, rows) for table, rows in zip(tables, wanted, strict=True)]


def report_unused(why: Mapping[str, int], report: Report) -> None:
    """Report why rows are in no fit."""
    for reason, rows in why.items():
        report(f"{rows} rows in no fit: {reason}")
