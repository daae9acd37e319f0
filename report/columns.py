"""Rows of text laid out in columns; what is too long for the screen wraps in the last column, or row by row."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

GAP = "  "
# A last column narrower than this reads worse than lines of its own below the row.
NARROWEST = 40


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


def _folded(row: Sequence[str], widths: Sequence[int], indent: int, room: int) -> list[str]:
    head = GAP.join(c.ljust(w) for c, w in zip(row[:-1], widths[:-1], strict=True))
    text = wrap(row[-1], room) or [""]
    if indent == 4:
        start = wrap(head.rstrip(), room + indent, subsequent_indent=" " * indent, break_long_words=False)
        return [*start, *(" " * indent + line for line in text if line)]
    return [(head + GAP + text[0]).rstrip(), *(" " * indent + line for line in text[1:])]
