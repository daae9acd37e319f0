"""The frame of all studies: a command line, a table, sentences that follow from it, a picture, and their files."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from matplotlib.axes import Axes
from picture import PANEL_IN, TALL_IN, column_figure

Cell: TypeAlias = "str | float | int"
# Placeholders of a template, and what would be a number typed into it.
_PLACEHOLDER, _NUMBER = re.compile(r"\{[^{}]*\}"), re.compile(r"\d|\b(half|twice|thirds?|quarters?|tenths?|hundred)\b")


@dataclass(frozen=True, slots=True)
class Table:
    """The answer of a study: named columns with their units, and rows.

    Attributes:
        columns: names, `step time (s)`.
        rows: cells; numbers stay numbers, and are rounded only for people.
        notes: what a reader has to know: sources, assumptions, what is not public.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse rows that are not as long as there are columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells for {len(self.columns)} columns: {row}")

    def column(self, name: str) -> list[Cell]:
        """Return one column."""
        place = list(self.columns).index(name)
        return [row[place] for row in self.rows]

    def numbers(self, name: str) -> list[float]:
        """Return one column of numbers."""
        return [float(cell) for cell in self.column(name)]

    def groups(self, name: str) -> dict[str, Table]:
        """Split the rows by what stands in a column, in the order of the table."""
        found = dict.fromkeys(map(str, self.column(name)))
        place = list(self.columns).index(name)
        return {key: Table(self.columns, [r for r in self.rows if str(r[place]) == key]) for key in found}

    def only(self, cells: Mapping[str, Cell]) -> Table:
        """Return the rows with these cells; numbers are compared as numbers."""
        places = [(list(self.columns).index(name), cell) for name, cell in cells.items()]
        return Table(self.columns, [row for row in self.rows if all(row[place] == cell for place, cell in places)])

    def number(self, name: str, cells: Mapping[str, Cell]) -> float:
        """Return one number: a column of the single row with these cells."""
        (number,) = self.only(cells).numbers(name)
        return number


Draw: TypeAlias = Callable[[Sequence[Axes], Table], None]
Conclude: TypeAlias = Callable[[Table], Iterator[str]]


class ClaimError(ValueError):
    """A sentence that its table does not support."""


def say(template: str, holds: bool, /, **facts: Cell) -> str:
    """Return a sentence made of facts of a table whose relation holds; ClaimError where one is typed, or it does not.

    >>> say("{new} is {gain:.2f} times as fast as {old}", 2.5 > 1, new="B200", old="A100", gain=2.5)
    'B200 is 2.50 times as fast as A100'
    """
    if typed := _NUMBER.search(_PLACEHOLDER.sub("", template)):
        raise ClaimError(f"{typed[0]!r} is typed into {template!r}: state it as a fact of the table")
    if not holds:
        raise ClaimError(f"the table does not support {template!r} with {facts}")
    return template.format(**facts)


# What is said of estimates beside published numbers; `error_facts` has its facts but for `what`.
ERRORS = (
    "Of {count} published {what} the estimates are {mean:.1f} % off on average and {most:.1f} % at most, {low} too low "
    "and {high} too high"
)


def error_facts(errors: Sequence[float]) -> dict[str, float]:
    """Return how far off estimates are, in the unit of their errors.

    >>> error_facts([2.0, -4.0])
    {'count': 2, 'mean': 3.0, 'most': 4.0, 'low': 1, 'high': 1}
    """
    sizes = [abs(error) for error in errors]
    low, high = (sum(sign * error > 0 for error in errors) for sign in (-1, 1))
    return {"count": len(errors), "mean": sum(sizes) / len(sizes), "most": max(sizes), "low": low, "high": high}


def run(
    doc: str | None,
    make: Callable[[bool], Table],
    draw: Draw,
    panels: int = 1,
    conclude: Conclude | None = None,
    panel_in: float | None = None,
) -> None:
    """Make the table of a study, print it, and write it as CSV and Markdown beside its picture as SVG.

    Args:
        doc: what the study is; its first line is the title.
        make: the table, of the full grid or of a reduced one.
        draw: draws the table on so many panels.
        panels: how many there are, one below the other.
        conclude: the sentences that follow from the table, five at most.
        panel_in: height of a panel in inches; None for low ones of studies that conclude, tall ones of others.
    """
    title = title_of(doc)
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the whole grid instead of a reduced one")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    given = parser.parse_args()
    table = make(given.full)
    given.output.mkdir(parents=True, exist_ok=True)
    text = f"# {title}\n\n{as_markdown(table, conclude)}"
    (given.output / f"{name}.csv").write_text(as_csv(table), encoding="utf-8")
    (given.output / f"{name}.md").write_text(text, encoding="utf-8")
    figure, axes = column_figure(title, panels, panel_in or (PANEL_IN if conclude else TALL_IN))
    draw(axes, table)
    figure.savefig(given.output / f"{name}.svg", metadata={"Date": None, "Title": title})
    print(f"{text}\nwrote {given.output / name}.csv, .md, .svg")


def title_of(doc: str | None) -> str:
    """Return the first line of what a study is."""
    return (doc or "").strip().splitlines()[0]


def read_table(text: str) -> Table:
    """Return the table that `as_csv` wrote: cells that are numbers become numbers again."""
    columns, *rows = csv.reader(io.StringIO(text))
    return Table(columns, [[_cell(cell) for cell in row] for row in rows])


def as_csv(table: Table) -> str:
    """Return the table with all its digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue()


def as_markdown(table: Table, conclude: Conclude | None = None) -> str:
    """Return the table for people, four digits a number, what follows from it above and its notes below.

    >>> print(as_markdown(Table(["chip", "step (s)"], [["a100", 1.23456]], ["by hand"])), end="")
    | chip | step (s) |
    |---|---|
    | a100 | 1.235 |
    <BLANKLINE>
    - by hand
    """
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(_shown, row)) + " |" for row in table.rows]
    notes = ["", *(f"- {note}" for note in table.notes)] if table.notes else []
    claims = [*(f"- {sentence}." for sentence in conclude(table)), ""] if conclude else []
    return "\n".join([*claims, *lines, *notes, ""])


def _shown(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _cell(text: str) -> Cell:
    try:
        return float(text)
    except ValueError:
        return text
