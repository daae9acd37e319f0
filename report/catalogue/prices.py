"""The price book: its profiles, and every number with its source and what other sources say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from ...ir.text.json_text import json_text
from ..columns import in_columns
from ..numbers import shown_value

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...backends.prices.section import Prices

Record = Mapping[str, object]


def profiles() -> list[Record]:
    """Return the profiles of the book, in short."""
    from ...backends.prices.book import USUAL, load_prices, profile_file, profile_names

    return [
        {
            "name": name,
            "numbers": len(load_prices(name).records),
            "own": _num_leaves(profile_file(name).tree),
            "usual": "yes" if name == USUAL else None,
        }
        for name in profile_names()
    ]


def _num_leaves(tree: object) -> int:
    """Numbers and words that a file gives, its name left out."""
    if not isinstance(tree, dict) or "source" in tree:
        return 1
    return sum(_num_leaves(found) for key, found in tree.items() if key != "name")


def show_prices(profile: str, overrides: Sequence[str], as_json: bool, columns: int | None) -> str:
    """Return every number of the book under a profile; what other sources say, which nobody uses, stands below it."""
    from ...backends.machine.files.system_tree import split_override
    from ...backends.prices.book import load_prices

    own = [text for text in overrides if split_override(text)[0][0] == "prices"]
    book = load_prices(profile, tuple(text.strip().removeprefix("system.").removeprefix("prices.") for text in own))
    if as_json:
        return json_text(_record(book), indent=2)
    others = book.others()
    rows = [[path, "", "", word] for path, word in book.words()]
    tables = [rows, *_tables(book.records, others)]
    found = sum(map(len, others.values()))
    title = f"{book.name}: {len(book.records)} numbers, {found} that other sources give (~), for --set to take"
    lines = in_columns([row for table in tables for row in table], columns).splitlines()
    return "\n".join([title, *_apart(lines, tables)])


def _tables(records: Sequence[NumberRecord], others: Mapping[str, Sequence[NumberRecord]]) -> Iterator[list[list[str]]]:
    """Rows of each part of the book; what others say behind the number that is used."""
    for _, found in groupby(records, key=lambda n: n.path.split(".")[1]):
        yield [row for n in found for row in (_row(n, n.path), *(_row(o, "  ~") for o in others.get(n.path, ())))]


def _row(number: NumberRecord, path: str) -> list[str]:
    dated = f" ({number.as_of})" if number.as_of else ""
    return [path, shown_value(number), number.confidence, f"{number.source}{dated}"]


def _apart(lines: Sequence[str], tables: Sequence[list[list[str]]]) -> Iterator[str]:
    """Put a blank line before the first line of each part."""
    starts = {table[0][0] for table in tables if table}
    for line in lines:
        if line.split("  ")[0] in starts:
            yield ""
        yield line


def _record(book: Prices) -> Record:
    others = book.others()
    numbers = [{**asdict(n), "others": [asdict(o) for o in others.get(n.path, ())]} for n in book.records]
    return {"name": book.name, "words": dict(book.words()), "numbers": numbers}
