"""Rankings under several books: each order is said, and who changes places."""

from __future__ import annotations

from slipstick.report.cost.books import order_notes


def test_one_book_says_nothing() -> None:
    assert list(order_notes({"market": ["a", "b"]})) == []


def test_every_pair_of_neighbours_that_changes_places_is_named_once_with_its_books() -> None:
    orders = {"one": ["a", "b", "c"], "two": ["a", "c", "b"], "three": ["c", "a", "b"], "four": ["a", "c", "b"]}
    flips = [line for line in order_notes(orders) if "flips" in line]
    assert flips == [
        "the ranking flips between books: c is before b under two, four, behind it under one",
        "the ranking flips between books: c is before a under three, behind it under one",
    ]


def test_equal_orders_say_so_and_strangers_change_no_place() -> None:
    lines = list(order_notes({"one": ["a", "b"], "two": ["x", "a", "b"]}))
    assert lines[-1] == "the ranking is the same under all of these prices"
    assert len(lines) == 3
