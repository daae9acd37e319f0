"""Rows of text laid out in columns; what is too long for the screen wraps in the last column, or row by row."""

from __future__ import annotations

import re
from collections.abc import Sequence

GAP = "  "
# A last column narrower than this reads worse than lines of its own below the row.
NARROWEST = 40
# Spaces, and words with the colors around them; a list without spaces breaks behind its commas, a number does not.
_PIECES = re.compile(r"\s+|(?:[^\s,]|,(?=[0-9]))+,?|,")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def in_columns(rows: Sequence[Sequence[str]], columns: int | None = None) -> str:
    """Align rows of equal length; `columns` is the width of the screen, None for no limit.

    >>> print(in_columns([["a", "1"], ["bcd", "23"]]))
    a    1
    bcd  23
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    left = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    if columns is None or left + widths[-1] <= columns:
        return "\n".join(GAP.join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)
    indent, room = (left, columns - left) if columns - left >= NARROWEST else (4, columns - 4)
    return "\n".join(line for row in rows for line in _folded(row, widths, indent, max(room, 1)))


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """Break a line between words, or behind the commas of a list; a word that is longer than a line stays whole.

    `indent` stands before each line but the first.

    >>> wrapped("one two,three 1,024", 10, "  ")
    ['one two,', '  three', '  1,024']
    """
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        if line.strip() and _length((line + piece).rstrip()) > columns:
            lines.append(line.rstrip())
            line = indent + piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]


def fitted(text: str, columns: int | None) -> str:
    r"""Return a text whose lines are no wider than a screen, further lines of one indented under it.

    >>> fitted("a bc\n  de fg hi", 7)
    'a bc\n  de fg\n    hi'
    """
    if columns is None:
        return text
    made = list[str]()
    for line in text.split("\n"):
        if _length(line) <= columns:
            made.append(line)
        else:
            made += wrapped(line, columns, " " * (len(line) - len(line.lstrip()) + 2))
    return "\n".join(made)


def _length(text: str) -> int:
    return len(_COLORS.sub("", text))


def _folded(row: Sequence[str], widths: Sequence[int], indent: int, room: int) -> list[str]:
    head = GAP.join(c.ljust(w) for c, w in zip(row[:-1], widths[:-1], strict=True))
    text = wrapped(row[-1], room)
    if indent == 4:
        start = wrapped(head.rstrip(), room + indent, " " * indent)
        return [*start, *(" " * indent + line for line in text if line)]
    return [(head + GAP + text[0]).rstrip(), *(" " * indent + line for line in text[1:])]
