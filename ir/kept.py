"""Results kept for when they are asked for again: so many of them, those asked for last."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Itself(Generic[V]):
    """An object as a key that equals itself alone: equal graphs may differ in what no comparison looks at."""

    __slots__ = ("it",)

    def __init__(self, it: V) -> None:
        """Keep the object."""
        self.it = it

    def __hash__(self) -> int:
        """Hash by identity."""
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        """Compare by identity."""
        return isinstance(other, Itself) and self.it is other.it


class RecentResults(Generic[K, V]):
    """The results of the last so many distinct questions."""

    __slots__ = ("_found", "most")

    def __init__(self, most: int) -> None:
        """Keep none yet, and never more than `most`.

        >>> kept = RecentResults[int, str](2)
        >>> [kept.of(n, lambda: str(n)) for n in (1, 2, 1, 3)], 1 in kept, 2 in kept
        (['1', '2', '1', '3'], True, False)
        """
        self.most = most
        self._found: dict[K, V] = {}

    def __contains__(self, key: object) -> bool:
        """Whether this is kept."""
        return key in self._found

    def of(self, key: K, make: Callable[[], V]) -> V:
        """Return what is kept, or make and keep it; what was asked for longest ago goes."""
        found = self._found.pop(key) if key in self._found else make()
        self._found[key] = found
        while len(self._found) > self.most:
            del self._found[next(iter(self._found))]
        return found
