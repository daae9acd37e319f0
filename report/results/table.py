"""What results are made of: rows and columns for programs, sections of text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...ir.records import dataclass

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]
Columns = Mapping[str, Sequence[Cell]]
# A name and what is said of it.
Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Panel:
    """A table of a page: its title, its heading, its rows as text.

    `shares` has a bar for each row, from 0 to 1; it is empty where nothing is drawn.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    shares: Sequence[float] = ()


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


def shown_rows(rows: Sequence[Row], most: int = 200) -> Panel:
    """Return rows as a section: numbers in four digits, at most so many of them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    left = len(rows) - most
    title = f"Rows, the first {most} of {len(rows):,}" if left > 0 else "Rows"
    return Panel(title, names, [[shown_cell(row.get(name)) for name in names] for row in rows[:most]])


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
