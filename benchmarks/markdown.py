"""Tables of the pages that sweeps write, and reasons in them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

_BAR = "\\|"
# Where a machine keeps its packages; a path at the end may have been cut.
_FOLDERS = re.compile(r"""[^\s('"]*site-packages/|(?<![^\s('"])/\S*$""")


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return "\n".join(map(line, (heading, ("---",) * len(heading), *rows)))


def line(cells: Sequence[str]) -> str:
    """Return a line of a table; a bar inside of a cell is escaped."""
    return f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |"


def by_reason(why_not: Mapping[str, str]) -> Iterator[str]:
    """Yield each reason once, behind the names of what it is of.

    >>> list(by_reason({"train": "no rule", "prefill": "no rule", "decode": "no cache"}))
    ['train, prefill: no rule', 'decode: no cache']
    """
    for reason in dict.fromkeys(why_not.values()):
        yield f"{', '.join(name for name, why in why_not.items() if why == reason)}: {short(reason)}"


def short(reason: str) -> str:
    """Return a reason without the folders of the machine, and no longer than a few lines."""
    told = without_folders(" ".join(reason.split()))
    return told if len(told) <= 240 else f"{told[:237]}..."


def without_folders(text: str) -> str:
    """Return a text without the folders in which Python finds its packages."""
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    return _FOLDERS.sub("", text)


__all__ = ["by_reason", "line", "short", "table", "without_folders"]
