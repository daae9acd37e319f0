"""Stages of a pipeline in a row, alike neighbours once, with running sums from the first stage on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from .tasks import Array


@dataclass(frozen=True, slots=True)
class Row:
    """Runs of neighbouring stages of one class: class, first stage and number of each.

    >>> Row.of([0, 1, 1, 2]).runs
    ((0, 0, 1), (1, 1, 2), (2, 3, 1))
    """

    runs: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, classes: Sequence[int]) -> Row:
        """Group the classes of stages 0 to p - 1."""
        runs, first = [], 0
        for kind, same in groupby(classes):
            num = len(list(same))
            runs.append((kind, first, num))
            first += num
        return cls(tuple(runs))

    @property
    def num_stages(self) -> int:
        """Stages in all."""
        return self.runs[-1][1] + self.runs[-1][2]

    def cut(self, stage: int) -> Row:
        """Return the same row with a run that ends before this stage and one that is this stage alone."""
        found: list[tuple[int, int, int]] = []
        for kind, first, num in self.runs:
            edges = sorted({first, first + num, *(e for e in (stage, stage + 1) if first < e < first + num)})
            found += [(kind, a, b - a) for a, b in pairwise(edges)]
        return Row(tuple(found))


@dataclass(frozen=True, slots=True)
class Place:
    """A stage at the start or the end of a run: its number, its run, and how many of the run lie before it."""

    stage: int
    run: int
    inside: int


def ends(row: Row) -> tuple[Place, ...]:
    """Return the last stage of every run."""
    return tuple(Place(first + num - 1, k, num - 1) for k, (_, first, num) in enumerate(row.runs))


def edges(row: Row) -> Iterator[Place]:
    """Yield the first and the last stage of every run."""
    for k, (_, first, num) in enumerate(row.runs):
        yield Place(first, k, 0)
        if num > 1:
            yield Place(first + num - 1, k, num - 1)


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of a line, forward from the first stage or backward to it; arrays run over plans.

    Attributes:
        time_s: seconds of a task, run by run.
        step_s: seconds of a task and of sending on, run by run.
        before_s: seconds on the way through all stages before each run.
        most_s: the longest task up to the end of each run.
        wrap_s: one way through all stages and on to the next chunk.
    """

    time_s: tuple[Array, ...]
    step_s: tuple[Array, ...]
    before_s: tuple[Array, ...]
    most_s: tuple[Array, ...]
    wrap_s: Array

    @classmethod
    def of(cls, row: Row, time_s: Sequence[Array], send_s: Sequence[Array], links: Sequence[Array]) -> Side:
        """Add up a direction: times and sends run by run, `links` behind each run, the last one to the next chunk."""
        before, steps = [np.zeros_like(time_s[0])], []
        for k, (_, _, num) in enumerate(row.runs):
            steps.append(time_s[k] + send_s[k])
            before.append(before[-1] + (steps[-1] * (num - 1) + time_s[k] + links[k]))
        most = [time_s[0]]
        for t in time_s[1:]:
            most.append(np.maximum(most[-1], t))
        return cls(tuple(time_s), tuple(steps), tuple(before[:-1]), tuple(most), before[-1])

    def until(self, place: Place) -> Array:
        """Seconds on the way to a stage, from the first one, without its own task."""
        if place.inside == 0:
            return self.before_s[place.run]
        return self.before_s[place.run] + self.step_s[place.run] * place.inside

    def through(self, place: Place) -> Array:
        """Seconds on the way through a stage, its own task with it."""
        return self.until(place) + self.time_s[place.run]


@dataclass(frozen=True, slots=True)
class Line:
    """Both directions of a row of stages; `sends` says whether any message takes time."""

    row: Row
    forward: Side
    backward: Side
    sends: bool

    @classmethod
    def of(cls, row: Row, forward_s: Array, backward_s: Array, send_s: Array) -> Line:
        """Lay times of classes, each (class, plan), on the row; a stage sends both ways in the same time."""
        classes = [kind for kind, _, _ in row.runs]
        f, b, s = ([a[k] for k in classes] for a in (forward_s, backward_s, send_s))
        sides = Side.of(row, f, s, s), Side.of(row, b, s, [*s[1:], s[0]])
        return cls(row, *sides, sends=any(bool(np.any(one)) for one in s))

    @property
    def mirrored(self) -> Line:
        """The line with its directions exchanged: a step run backwards in time."""
        return Line(self.row, self.backward, self.forward, self.sends)

    def both(self, run: int) -> Array:
        """Seconds of one micro-batch, forward and backward, on a stage of a run."""
        return self.forward.time_s[run] + self.backward.time_s[run]

    def busy(self, place: Place, end: Place) -> Array:
        """Seconds of one micro-batch on the stages from the first of a run to the last of another, without messages."""
        each = [self.both(k) * num for k, (_, _, num) in enumerate(self.row.runs) if place.run <= k <= end.run]
        return np.asarray(sum(each[1:], each[0]))
