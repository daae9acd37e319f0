"""Sums of node times by label, compiled once a label: which rows of a stack of times each sum adds, and how often."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass
from ...ir.sizes.rowsums import RowSums
from .program import PricedEntry

K = TypeVar("K", bound=Hashable)
Index: TypeAlias = NDArray[np.intp]
# Entries group by group, and the row of each among those of its group; a slice where each has its own.
Stack: TypeAlias = Sequence[tuple[Sequence[PricedEntry], Index | slice]]


@dataclass(frozen=True, slots=True)
class LabelTally(Generic[K]):
    """The labels of one stack of entries, and the sum of each."""

    labels: tuple[K, ...]
    sums: RowSums

    @classmethod
    def of(cls, stack: Stack, label: Callable[[PricedEntry], K | None], once: bool) -> LabelTally[K]:
        """Look at every entry; None leaves one out. An entry counts as often as its region runs, or `once`.

        Each is added by itself, in its order, though equal ones share a row: what is added up in another order rounds
        otherwise.
        """
        found: dict[K, dict[int, float]] = {}
        entries = (entry for part, _ in stack for entry in part)
        for number, entry in enumerate(entries):
            key = label(entry)
            if key is not None:
                found.setdefault(key, {})[number] = 1.0 if once else float(entry.count)
        places, start = list[Index](), 0
        for part, row in stack:
            own = np.arange(len(part)) if isinstance(row, slice) else row
            places.append(own + start)
            start += int(own.max(initial=-1)) + 1
        return cls(tuple(found), RowSums.of(list(found.values())).among(np.concatenate(places)))


class Tallies:
    """Tallies of the stacks of one program by the function that labels them, for as long as there is that function."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: WeakKeyDictionary[Callable[[PricedEntry], object], dict[bool, Sequence[object]]] = (
            WeakKeyDictionary()
        )

    def of(
        self, stacks: Sequence[Stack], label: Callable[[PricedEntry], K | None], once: bool
    ) -> Sequence[LabelTally[K]]:
        """Return one tally a stack; the stacks are the same every time."""
        known = self._known.setdefault(label, {})
        if once not in known:
            known[once] = [LabelTally.of(stack, label, once) for stack in stacks]
        return cast(Sequence[LabelTally[K]], known[once])
