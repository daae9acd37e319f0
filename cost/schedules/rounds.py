"""Closed form of interleaved 1F1B over plans: as in `forms`, with ways that go round from the last stage to the first.

Times are those of one chunk, and every stage has v alike. With M = m v tasks of each kind, stage i runs
w_i = 2 (p - 1 - i) + (v - 1) p forward tasks ahead, then forward and backward by turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .line import Line, Place, edges, ends
from .tasks import Array

# A way to the first turn of a stage, and how many of its turns are over on arrival; half a one where it arrives
# between the two tasks of a turn. None where there is no such way.
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
        if ahead >= tasks - 1:
            found = np.maximum(found, _all_first_s(line, place, total))
        if spare < 0:
            found = np.maximum(found, np.maximum(heads.then_one_way(place, total), tails.then_one_way(place, total)))
            continue
        pairs = [(h, t) for h, done in heads.to(place) for t, over in tails.to(place) if done + over <= spare + 0.5]
        turns = (total - float(ahead + 1)) * x
        for head, tail in pairs:
            found = np.maximum(found, head + tail + turns)
    return found


def _all_first_s(line: Line, place: Place, total: Array) -> Array:
    """All forward tasks, then all backward tasks, on stages up to one."""
    most = line.forward.most_s[place.run] + line.backward.most_s[place.run]
    return line.forward.through(place) + line.backward.through(place) + (total - 1.0) * most


@dataclass(slots=True)
class _Ways:
    """Ways from the first forward task to the turns of each stage; of the mirrored line, from the turns to the end."""

    line: Line
    num_chunks: int
    tasks: int

    @property
    def filled_s(self) -> Array:
        """Until the last stage has its last chunk's first task done."""
        last = ends(self.line.row)[-1]
        return self.line.forward.through(last) + self._rounds_s(last)

    def ahead(self, place: Place) -> int:
        """Forward tasks that a stage runs before its first turn."""
        p = self.line.row.num_stages
        return 2 * (p - 1 - place.stage) + (self.num_chunks - 1) * p

    def _rounds_s(self, place: Place) -> Array:
        """What comes on top of the way down, until a stage may turn: rounds, or tasks of one stage, and its own."""
        p, side = self.line.row.num_stages, self.line.forward
        slowest = side.most_s[-1] * p
        mixed = side.wrap_s + np.maximum(slowest, side.wrap_s) * (self.num_chunks - 2)
        here = side.most_s[place.run]
        return np.maximum(here * (p * (self.num_chunks - 1)), mixed) + here * (2 * (p - 1 - place.stage))

    def _up_s(self, place: Place, end: Place) -> Array:
        """Down to a later stage, and up again."""
        line = self.line
        way = line.forward.through(end) + self._rounds_s(end) + line.backward.through(end)
        return way - line.backward.through(place)

    def _through_later(self, place: Place) -> list[Array]:
        later = [end for end in ends(self.line.row)[place.run :] if end.stage > place.stage]
        return [self._up_s(place, end) for end in later if self.ahead(end) < self.tasks]

    def to(self, place: Place) -> list[Way]:
        """Return the ways to a stage: by its own tasks, through later stages, and round."""
        own = self.line.forward.through(place) + self._rounds_s(place)
        through = self._through_later(place)
        found: list[Way] = [(own, 0.0)]
        if through:
            found.append((np.maximum.reduce(through), 0.5))
        around = self._around_s()
        if around:
            over = 2 * place.stage + 2
            way = np.maximum.reduce(around) + self.line.forward.through(place)
            found.append((way - self.line.both(place.run) * over, float(over)))
        return found

    def _around_s(self) -> list[Array]:
        """Turns on a later stage until micro-batches of the second round pass, then down and round to the first."""
        p, side, found = self.line.row.num_stages, self.line.forward, []
        for place in ends(self.line.row):
            turns = 2 * place.stage + 2 - p
            if turns >= 0 and self.tasks > (self.num_chunks + 1) * p:
                own = side.through(place) + self._rounds_s(place)
                first = np.maximum.reduce([own, *self._through_later(place)])
                found.append(first + self.line.both(place.run) * turns + (side.wrap_s - side.until(place) - side.time_s[place.run]))
        return found

    def then_one_way(self, place: Place, total: Array) -> Array:
        """Through later stages, then all tasks of the other direction one behind the other."""
        back = self.line.backward
        first = np.maximum.reduce([self.filled_s * 0.0, *self._through_later(place)])
        return np.where(first > 0.0, first + back.through(place) + (total - 1.0) * back.most_s[place.run], 0.0)
