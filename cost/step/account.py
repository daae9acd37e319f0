"""Seconds by part: what of them is part of the step, and what hides behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass

Array = NDArray[np.float64]
Parts = dict[str, Array]


@dataclass
class Account:
    """Seconds by part, exposed and hidden."""

    exposed: Parts = field(default_factory=dict)
    hidden: Parts = field(default_factory=dict)

    @property
    def total_s(self) -> Array:
        """All exposed seconds, added up in one order whatever the order of booking."""
        return total_of(self.exposed)

    def add(self, part: str, seconds: Array, hidden: Array | None = None) -> None:
        """Book exposed seconds, and what communication hid behind computation."""
        self.exposed[part] = self.exposed[part] + seconds if part in self.exposed else seconds
        if hidden is not None:
            self.hidden[part] = self.hidden[part] + hidden if part in self.hidden else hidden

    def join(self, other: Account) -> None:
        """Book all of another account."""
        for part, seconds in other.exposed.items():
            self.add(part, seconds)
        for part, seconds in other.hidden.items():
            self.hidden[part] = self.hidden[part] + seconds if part in self.hidden else seconds

    def times(self, factor: Array) -> Account:
        """Return all seconds so many times."""
        return Account(
            {part: s * factor for part, s in self.exposed.items()},
            {part: s * factor for part, s in self.hidden.items()},
        )

    def where(self, better: NDArray[np.bool_], other: Account) -> Account:
        """Take the other account for the plans where it is better."""
        return Account(_where(better, other.exposed, self.exposed), _where(better, other.hidden, self.hidden))


def total_of(parts: Mapping[str, Array]) -> Array:
    """Add up parts in the order of their names."""
    values = [parts[name] for name in sorted(parts)]
    return np.asarray(sum(values[1:], values[0])) if values else np.zeros(1)


def _where(better: NDArray[np.bool_], new: Parts, old: Parts) -> Parts:
    return {p: np.where(better, new.get(p, 0.0), old.get(p, 0.0)) for p in dict.fromkeys((*old, *new))}
