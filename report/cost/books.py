"""Rankings under several books of prices: where their orders differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise


def orders_record(orders: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Return the order under each book of prices and who changes places, for JSON; nothing without orders."""
    return {"orders": dict(orders), "flips": list(order_notes(orders))} if orders else {}


def order_notes(orders: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the order under each book of prices, and who changes places; nothing for one book.

    >>> list(order_notes({"market": ["a", "b", "c"], "catch": ["b", "a", "c"]}))[-1]
    'the ranking flips between books: b is before a under catch, behind it under market'
    """
    if len(orders) < 2:
        return
    for book, names in orders.items():
        yield f"prices {book}: {', '.join(names)}"
    (first, usual), *others = orders.items()
    places = {name: place for place, name in enumerate(usual)}
    flips: dict[tuple[str, str], list[str]] = {}
    for book, names in others:
        known = [name for name in names if name in places]
        for ahead, behind in pairwise(known):
            if places[ahead] > places[behind]:
                flips.setdefault((ahead, behind), []).append(book)
    for (ahead, behind), books in flips.items():
        told = f"{ahead} is before {behind} under {', '.join(books)}, behind it under {first}"
        yield f"the ranking flips between books: {told}"
    if not flips:
        yield "the ranking is the same under all of these prices"
