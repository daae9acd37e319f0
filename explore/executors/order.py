"""Which part of a space a worker goes to next, so that neighbours, which share much, stay with one worker."""

from __future__ import annotations


class Untouched:
    """Places in a row that no worker has begun, as gaps between those that one has.

    A worker goes on with the place behind its own. Where that is taken it begins in the middle of the largest gap: who
    comes from the left then has as far to go as itself.
    """

    def __init__(self, num_places: int) -> None:
        self._gaps = {0: num_places} if num_places else {}

    def take(self, behind: int | None) -> int | None:
        """Take the place behind one's own, else one that is far from all others; None when none is left.

        >>> left = Untouched(9)
        >>> left.take(None), left.take(None), left.take(0), left.take(5), left.take(8)
        (0, 5, 1, 6, 3)
        """
        if not self._gaps:
            return None
        place = 0 if behind is None else behind + 1
        if place not in self._gaps:
            first = max(self._gaps, key=lambda first: self._gaps[first] - first)
            place = (first + self._gaps[first]) // 2
            return self._cut(first, place)
        return self._cut(place, place)

    def _cut(self, first: int, place: int) -> int:
        last = self._gaps.pop(first)
        if first < place:
            self._gaps[first] = place
        if place + 1 < last:
            self._gaps[place + 1] = last
        return place
