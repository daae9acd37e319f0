"""Closed form of interleaved 1F1B over plans: as in `forms`, with ways that go round from the last stage to the first.

Times are those of one chunk, and every stage has v alike. With M = m v tasks of each kind, stage i runs
w_i = 2 (p - 1 - i) + (v - 1) p forward tasks ahead, then forward and backward by turns.
"""

from __future__ import annotations

import numpy as np

from .line import Line, Place, edges, ends
from .tasks import Array

# A way to the first turn of a stage, and how many of its turns are over on arrival; half a one where it arrives
# between the two tasks of a turn.
Way = tuple[Array, float]


def interleaved_s(line: Line, num_micro_batches: Array, num_chunks: int, rounds: int) -> Array:
    """Return the seconds of a step.

    `rounds` is the least m / p of all plans. Where it is 1, the line has a run that ends with stage (p - 1) // 2, the
    last that runs all forward tasks first.
    """
    p = line.row.num_stages
    total = num_micro_batches * num_chunks
    tasks = rounds * p * num_chunks
    heads, tails = _Ways(line, num_chunks, tasks), _Ways(line.mirrored, num_chunks, tasks)
    # Round every chunk and back, and the micro-batches of a round at one stage.
    most = np.maximum(line.forward.most_s[-1], line.backward.most_s[-1])
    found = heads.filled_s + tails.filled_s + (total - float((num_chunks - 1) * p + 1)) * most
    for place in edges(line.row):
        x = line.both(place.run)
        found = np.maximum(found, line.forward.until(place) + line.backward.until(place) + total * x)
        ahead = heads.ahead(place)
        spare = tasks - ahead - 1
        if spare <= 0:
            found = np.maximum(found, _all_first_s(line, place, total))
        if spare < 0:
            found = np.maximum(found, np.maximum(heads.then_one_way(place, total), tails.then_one_way(place, total)))
            continue
        turns = (total - float(ahead + 1)) * x
        for head, tail in _pairs(heads.to(place), tails.to(place), spare + 0.5):
            found = np.maximum(found, head + tail + turns)
    return found


def _pairs(heads: list[Way], tails: list[Way], most: float) -> list[tuple[Array, Array]]:
    """Ways to a stage and from it that leave it no fewer than no turns."""
    if heads[-1][1] + tails[-1][1] <= most:
        return [(np.maximum.reduce([h for h, _ in heads]), np.maximum.reduce([t for t, _ in tails]))]
    return [(h, t) for h, done in heads for t, over in tails if done + over <= most]


def _all_first_s(line: Line, place: Place, total: Array) -> Array:
    """All forward tasks, then all backward tasks, on stages up to one."""
    most = line.forward.most_s[place.run] + line.backward.most_s[place.run]
    return line.forward.through(place) + line.backward.through(place) + (total - 1.0) * most


class _Ways:
    """Ways from the first forward task to the turns of each stage; of the mirrored line, from the turns to the end.

    `filled_s` is the way until the last stage has its last chunk's first task done.
    """

    def __init__(self, line: Line, num_chunks: int, tasks: int) -> None:
        self.line, self.num_chunks, self.tasks = line, num_chunks, tasks
        side, p = line.forward, line.row.num_stages
        self._mixed_s = side.wrap_s + np.maximum(side.most_s[-1] * p, side.wrap_s) * (num_chunks - 2)
        places = ends(line.row)
        self.filled_s = self._own(places[-1])
        # Down to the end of each run or of a later one, and up again to the first stage.
        self._later: list[Array | None] = [None] * (len(places) + 1)
        for place in reversed(places):
            way, later = None, self._later[place.run + 1]
            if self.ahead(place) < tasks:
                way = self._own(place) + line.backward.through(place)
            self._later[place.run] = later if way is None else way if later is None else np.maximum(way, later)
        self._around = self._around_s() if tasks > (num_chunks + 1) * p else None

    def ahead(self, place: Place) -> int:
        """Forward tasks that a stage runs before its first turn."""
        p = self.line.row.num_stages
        return 2 * (p - 1 - place.stage) + (self.num_chunks - 1) * p

    def to(self, place: Place) -> list[Way]:
        """Return the ways to a stage: by its own tasks, through later stages, and round."""
        through = self._through_later(place)
        found: list[Way] = [(self._own(place), 0.0)]
        if through is not None:
            found.append((through, 0.5))
        if self._around is not None:
            over = 2 * place.stage + 2
            way = self._around + self.line.forward.through(place)
            found.append((way - self.line.both(place.run) * over, float(over)))
        return found

    def then_one_way(self, place: Place, total: Array) -> Array:
        """Through later stages, then all tasks of the other direction one behind the other."""
        back, first = self.line.backward, self._through_later(place)
        if first is None:
            return np.zeros_like(total)
        return first + back.through(place) + (total - 1.0) * back.most_s[place.run]

    def _own(self, place: Place) -> Array:
        """Down to a stage, and on top what it takes until that may turn: rounds or tasks of one stage, and its own."""
        p, side = self.line.row.num_stages, self.line.forward
        here = side.most_s[place.run]
        first: Array = np.maximum(here * (p * (self.num_chunks - 1)), self._mixed_s)
        return side.through(place) + first + here * (2 * (p - 1 - place.stage))

    def _through_later(self, place: Place) -> Array | None:
        """Down to a later stage, and up again."""
        last_of_run = place.inside == self.line.row.runs[place.run][2] - 1
        later = self._later[place.run + 1 if last_of_run else place.run]
        return None if later is None else later - self.line.backward.through(place)

    def _around_s(self) -> Array:
        """Turns on a later stage until micro-batches of the second round pass, then down and round to the first."""
        p, side = self.line.row.num_stages, self.line.forward
        found: Array = np.zeros_like(side.wrap_s)
        for place in ends(self.line.row):
            turns = 2 * place.stage + 2 - p
            if turns >= 0:
                first, later = self._own(place), self._through_later(place)
                first = first if later is None else np.maximum(first, later)
                found = np.maximum(found, first + self.line.both(place.run) * turns + side.wrap_s - side.through(place))
        return found
