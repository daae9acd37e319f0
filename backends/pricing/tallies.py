"""Sums of node times by label, compiled once a label: which rows of a stack of times each sum adds, and how often."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from ...ir.sizes.rowsums import RowSums
from .program import Entry

K = TypeVar("K", bound=Hashable)
# Entries in the order of their rows.
Stack: TypeAlias = Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Tally(Generic[K]):
    """The labels of one stack of entries, and the sum of each."""

    labels: tuple[K, ...]
    sums: RowSums

    @classmethod
    def of(cls, entries: Stack, label: Callable[[Entry], K | None], once: bool) -> Tally[K]:
        """Look at every entry; None leaves one out. An entry counts as often as its region runs, or `once`."""
        found: dict[K, dict[int, float]] = {}
        for row, entry in enumerate(entries):
            key = label(entry)
            if key is not None:
                found.setdefault(key, {})[row] = 1.0 if once else float(entry.count)
        return cls(tuple(found), RowSums.of(list(found.values())))


class Tallies:
    """Tallies of the stacks of one program by the function that labels them, for as long as there is that function."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: WeakKeyDictionary[Callable[[Entry], object], dict[bool, Sequence[object]]] = WeakKeyDictionary()

    def of(self, stacks: Sequence[Stack], label: Callable[[Entry], K | None], once: bool) -> Sequence[Tally[K]]:
        """Return one tally a stack; the stacks are the same every time."""
        known = self._known.setdefault(label, {})
        if once not in known:
            known[once] = [Tally.of(entries, label, once) for entries in stacks]
        return cast(Sequence[Tally[K]], known[once])
