"""Stages of a pipeline in a row, alike neighbours once, with running sums from the first stage on; many plans at once.

Arrays run over (run, plan), or (run, direction, plan): forward from the first stage, and backward to it. What all plans
have in common is a column of one plan. No plan's numbers depend on the others of its table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...records import dataclass
from ...sizes.expr import Num

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StageSeries:
    """Runs of neighbouring stages of one class, of plans that have equally many of them.

    Attributes:
        first: the first stage of each run, as (run, plan).
        num: how many there are, as (run, plan).
        num_stages: stages in all, plan by plan.
    """

    first: Array
    num: Array
    num_stages: Array


@dataclass(frozen=True, slots=True)
class Places:
    """One stage of some neighbouring runs: the first ones, or the last ones.

    Attributes:
        runs: which runs these are.
        stage: number of the stage, as (run, plan).
        late: where no other stage of the run comes behind it, as (run, plan); None for everywhere.
        until_s: seconds on the way to it, without its own task, as (run, direction, plan).
        through_s: seconds on the way through it, its own task with it.
        most_s: the longest task up to it.
        both_s: seconds of one micro-batch on it, forward and backward, as (run, plan).
    """

    runs: slice
    stage: Array
    late: NDArray[np.bool_] | None
    until_s: Array
    through_s: Array
    most_s: Array
    both_s: Array

    def part(self, runs: slice) -> Places:
        """Return those of some neighbouring runs, where this is of all."""
        late = None if self.late is None else self.late[runs]
        return Places(
            runs, self.stage[runs], late, self.until_s[runs], self.through_s[runs], self.most_s[runs], self.both_s[runs]
        )

    def through_later_s(self, later_s: Array) -> Array:
        """Return seconds to these stages down to a later one and up again, -inf where there is none.

        `later_s` is the longest way down to a later stage and up to the first one: see `longest_later`.
        """
        behind = later_s[1:][self.runs]
        if self.late is not None:
            behind = np.where(self.late[:, None], behind, later_s[:-1][self.runs])
        return np.asarray(behind - other_way(self.through_s))


@dataclass(frozen=True, slots=True)
class Line:
    """Both directions of rows of stages.

    Attributes:
        runs: of which it is made.
        starts: the first stage of every run.
        ends: the last stage of every run.
        wrap_s: one way through all stages and on to the next chunk, as (direction, plan).
        send_s: seconds of sending on, as (run, plan); None where no message takes time.
    """

    runs: StageSeries
    starts: Places
    ends: Places
    wrap_s: Array
    send_s: Array | None

    @classmethod
    def of(cls, runs: StageSeries, time_s: Array, send_s: Array | None) -> Line:
        """Add up both directions; a stage sends both ways in the same time."""
        inside = runs.num - 1.0
        step = time_s if send_s is None else time_s + send_s[:, None]
        ahead = step * inside[:, None]
        way = ahead + time_s
        if send_s is not None:
            # Behind a run, forward, comes its own message; backward that of the next one, and last that of the first.
            way += np.stack([send_s, np.roll(send_s, -1, axis=0)], axis=1)
        before, most = np.zeros((len(way) + 1, *way.shape[1:])), time_s.copy()
        for k, seconds in enumerate(way):
            np.add(before[k], seconds, out=before[k + 1])
        for k in range(1, len(most)):
            np.maximum(most[k - 1], most[k], out=most[k])
        both, every = time_s[:, 0] + time_s[:, 1], slice(0, len(way))
        until = before[:-1] + ahead
        starts = Places(every, runs.first, runs.num == 1.0, before[:-1], before[:-1] + time_s, most, both)
        ends = Places(every, runs.first + inside, None, until, until + time_s, most, both)
        return cls(runs, starts, ends, before[-1], send_s)

    @property
    def edges(self) -> tuple[Places, ...]:
        """The first stages of all runs, and the last ones of those that have more than one."""
        longer = np.flatnonzero((self.runs.num > 1.0).any(axis=1))
        if not len(longer):
            return (self.starts,)
        return self.starts, self.ends.part(slice(int(longer[0]), int(longer[-1]) + 1))


def other_way(seconds: Array) -> Array:
    """Return seconds, as (run, direction, plan), with the directions exchanged."""
    return seconds[:, ::-1]


def longest_later(way_s: Array) -> Array:
    """Return the longest of the ways through a run or a later one, and behind the last run that there is none."""
    found = np.full((len(way_s) + 1, *way_s.shape[1:]), -np.inf)
    for k in reversed(range(len(way_s))):
        np.maximum(found[k + 1], way_s[k], out=found[k])
    return found


def longest(ways: list[Array]) -> Array:
    """Return the longest of ways, each as (run, plan), plan by plan."""
    found = [np.maximum.reduce(way, axis=0) for way in ways]
    return np.asarray(np.maximum.reduce(found))


def one_number(values: Num) -> Num:
    """Return one number where all are equal: what all plans have in common is worked out once."""
    return float(values[0]) if isinstance(values, np.ndarray) and (values == values[0]).all() else values
