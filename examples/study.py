"""What all studies share: a command line, a table, a picture, and the files that both go into."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Cell: TypeAlias = "str | float | int"
# Characters of a title over one panel.
TITLE_WIDTH = 60


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


Draw: TypeAlias = Callable[[Sequence[Axes], Table], None]


def run(doc: str | None, make: Callable[[bool], Table], draw: Draw, panels: int = 1) -> None:
    """Make the table of a study, print it, and write it as CSV and Markdown beside its picture as SVG.

    Args:
        doc: what the study is; its first line is the title.
        make: the table, of the full grid or of a reduced one.
        draw: draws the table on so many panels.
        panels: how many there are, side by side.
    """
    title = (doc or "").strip().splitlines()[0]
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the whole grid instead of a reduced one")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    given = parser.parse_args()
    table = make(given.full)
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / f"{name}.csv").write_text(as_csv(table), encoding="utf-8")
    (given.output / f"{name}.md").write_text(f"# {title}\n\n{as_markdown(table)}", encoding="utf-8")
    _picture(title, table, draw, panels).savefig(given.output / f"{name}.svg", metadata={"Date": None})
    print(f"{title}\n\n{as_markdown(table)}\nwrote {given.output / name}.csv, .md, .svg")


def as_csv(table: Table) -> str:
    """Return the table with all its digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue()


def as_markdown(table: Table) -> str:
    """Return the table for people, four digits a number, its notes below.

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
    return "\n".join([*lines, *notes, ""])


def _shown(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _picture(title: str, table: Table, draw: Draw, panels: int) -> Figure:
    # The same table gives the same file.
    rcParams.update({"svg.hashsalt": title, "svg.fonttype": "none"})
    figure = Figure(figsize=(6.4 * panels, 4.4), layout="constrained")
    figure.suptitle(textwrap.fill(title, TITLE_WIDTH * panels))
    draw([figure.add_subplot(1, panels, k + 1) for k in range(panels)], table)
    return figure
