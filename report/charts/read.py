"""Reads documents of answers, whoever wrote them: what is not there, or is not what it should be, is left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

Document = Mapping[str, object]


def part(document: Document, name: str) -> Document:
    """Return a part by its name; an empty one where there is none.

    >>> part({"a": {"b": 1}}, "a"), part({"a": 1}, "a")
    ({'b': 1}, {})
    """
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def records(document: Document, name: str) -> list[Document]:
    """Return the records of a list by its name."""
    found = document.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def number(value: object) -> float:
    """Return a value as a number; nan where it is none.

    >>> number(2), number("2")
    (2.0, nan)
    """
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def numbers(document: Document) -> dict[str, float]:
    """Return the values of a part that are numbers."""
    return {name: float(v) for name, v in document.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def leaves(bill: Document, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the lines of a bill that no other lines make up, by their path, with their sums."""
    for one in records(bill, "parts"):
        name = f"{path}{one.get('name')}"
        if records(one, "parts"):
            yield from leaves(one, f"{name}: ")
        else:
            yield name, number(one.get("usd"))
