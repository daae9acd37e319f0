"""What every result can do: say itself in a few lines, and become a record, a table, a page or a file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, TypeVar, cast, overload

from ...ir.errors import UsageError
from ..columns import in_columns

F = TypeVar("F")
Cell = str | int | float | bool | None
Row = Mapping[str, Cell]
Columns = Mapping[str, Sequence[Cell]]
# Libraries of frames, in the order in which they are looked for.
FRAMES = ("pandas", "polars")
# A screen in a file or a pipe is laid out for so many columns; what a notebook prints, for these.
FILE_COLUMNS, WIDTH = 120, 100


@dataclass(frozen=True, slots=True)
class Section:
    """A table of a page: its title, its heading, its rows as text.

    `shares` has a bar for each row, from 0 to 1; it is empty where nothing is drawn.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    shares: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Result(ABC):
    """An answer that a verb of the command line writes, and that a function of Python returns.

    `command` is the command line that gives the same; `forms` are the forms that a file of it may have.
    """

    command: str = ""
    forms: ClassVar[tuple[str, ...]] = ("json", "csv", "parquet", "md", "html", "table")

    @abstractmethod
    def json(self) -> str:
        """Return the document that `--format json` prints."""

    @abstractmethod
    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen that the command line shows, for so many columns."""

    @abstractmethod
    def summary(self) -> Sequence[tuple[str, str]]:
        """Return three to six lines, each of a name and what is said of it; the first is the title."""

    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """Return the rows of the result as a table; whole numbers are ints."""

    @abstractmethod
    def sections(self) -> Sequence[Section]:
        """Return the tables of a page."""

    def svg(self) -> str:
        """Return the picture of the result, where it has one: see `forms`."""
        raise UsageError(f"there is no picture of this result; allowed: {', '.join(self.forms)}")

    def to_dict(self) -> dict[str, object]:
        """Return the document of `--format json` as Python has it."""
        return cast(dict[str, object], json.loads(self.json()))

    def to_columns(self) -> Columns:
        """Return the table column by column; None where a row says nothing."""
        rows = self.rows()
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    @overload
    def to_frame(self) -> object: ...

    @overload
    def to_frame(self, make: Callable[[Columns], F]) -> F: ...

    def to_frame(self, make: Callable[[Columns], F] | None = None) -> F | object:
        """Return the table as a frame of pandas, else of polars; or of what `make` makes of columns.

        UsageError where neither is installed. A type checker knows the frame of `to_frame(pandas.DataFrame)`.
        """
        return (make or _frame_maker())(self.to_columns())

    def save(self, path: str | Path) -> Path:
        """Write the result in the form that the suffix says, and return the path; UsageError names those there are."""
        from .files import write_result

        return write_result(self, Path(path))

    def __repr__(self) -> str:
        (title, first), *rest = self.summary()
        lines = in_columns([(f"  {name}", told) for name, told in rest], WIDTH) if rest else ""
        return f"{title}  {first}".rstrip() + (f"\n{lines}" if lines else "")

    def _repr_html_(self) -> str:
        from .page import fragment

        return fragment(self)


def _frame_maker() -> Callable[[Columns], object]:
    for name in FRAMES:
        if find_spec(name) is not None:
            return cast(Callable[[Columns], object], import_module(name).DataFrame)
    raise UsageError(f"a frame needs {' or '.join(FRAMES)}: pip install one of them; to_columns() needs neither")


def flat(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Cell]]:
    """Yield the values of a record by their path; a list is one text.

    >>> dict(flat({"a": {"b": 1, "c": [2, 3]}, "d": None}))
    {'a.b': 1, 'a.c': '2, 3', 'd': None}
    """
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif value is None or isinstance(value, str | int | float):
            yield f"{prefix}{name}", value
        else:
            listed = value if isinstance(value, list | tuple) else [value]
            yield f"{prefix}{name}", ", ".join(map(str, listed))


def shown_rows(rows: Sequence[Row], most: int = 200) -> Section:
    """Return rows as a section: numbers in four digits, at most so many of them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    left = len(rows) - most
    title = f"Rows, the first {most} of {len(rows):,}" if left > 0 else "Rows"
    return Section(title, names, [[shown_cell(row.get(name)) for name in names] for row in rows[:most]])


def shown_cell(value: Cell) -> str:
    """Return a value of a row as people read it.

    >>> shown_cell(1234567), shown_cell(0.123456), shown_cell(None), shown_cell(True)
    ('1,234,567', '0.1235', '', 'yes')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
