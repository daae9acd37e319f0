"""One schedule run for many plans at once: tasks that cannot wait for one another are done together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .menu import schedule_of
from .simulate import TaskGraph, depths, graph_of
from .tasks import Array, Index, Kind


@dataclass(frozen=True, slots=True)
class Wave:
    """Units of tasks that may run at the same time.

    Attributes:
        units: which they are.
        before: the unit before each on its stage, or the last row, which ends at 0.
        waits: the unit that each waits for, or the last row.
        sends: what is sent from there, as a row of latencies, or the last row, which is 0.
        second: of joined tasks: their place among the units, what they wait for too, and what is sent.
    """

    units: Index
    before: Index
    waits: Index
    sends: Index
    second: tuple[Index, Index, Index]


@dataclass(frozen=True, slots=True)
class Waves:
    """A schedule as waves of units, one behind the other.

    Attributes:
        waves: the waves.
        tasks: how often each row of times is part of each unit, as two rows; the last row of times is 0.
        first: the first unit of each stage.
        last: its last one.
        rolls: whether stages go on to the next step without waiting for one another.
    """

    waves: tuple[Wave, ...]
    tasks: Index
    first: Index
    last: Index
    rolls: bool

    @property
    def num_units(self) -> int:
        """Units in all."""
        return int(self.tasks.shape[1])

    def step_s(self, times: Array, sends: Array) -> Array:
        """Return the seconds of a step, plan by plan.

        `times` are seconds of a kind of task on a stage, as (kind x stages + stage, plan), `sends` those of a message
        from a stage; both with a row of zeros at the end.
        """
        unit_s = times[self.tasks[0]] + times[self.tasks[1]]
        end = np.zeros((self.num_units + 1, times.shape[1]))
        for wave in self.waves:
            start = np.maximum(end[wave.before], end[wave.waits] + sends[wave.sends])
            place, waits, sent = wave.second
            if len(place):
                start[place] = np.maximum(start[place], end[waits] + sends[sent])
            end[wave.units] = start + unit_s[wave.units]
        if not self.rolls:
            return np.asarray(end[self.last].max(axis=0))
        return np.asarray((end[self.last] - end[self.first] + unit_s[self.first]).max(axis=0))


@lru_cache(maxsize=256)
def waves_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int) -> Waves:
    """Sort the tasks of a schedule into waves."""
    schedule = schedule_of(name, num_stages, num_micro_batches, num_chunks)
    graph = graph_of(schedule)
    num = graph.waits.shape[1]
    depth = np.array(depths(graph))
    first, last = graph.first[:-1], graph.first[1:] - 1
    before = np.arange(num) - 1
    before[first] = num
    waits = np.where(graph.waits >= 0, graph.waits, num)
    none = num_stages
    sends = np.where(graph.sender >= 0, graph.stage[graph.sender], none)
    order = np.argsort(depth, kind="stable")
    starts = np.flatnonzero(np.diff(depth[order], prepend=0))
    waves = tuple(_wave(units, before, waits, sends, num) for units in np.split(order, starts[1:]))
    return Waves(waves, _tasks(graph, num_stages), first, last, schedule.rolls)


def _wave(units: Index, before: Index, waits: Index, sends: Index, none: int) -> Wave:
    place = np.flatnonzero(waits[1, units] != none)
    second = (place, waits[1, units[place]], sends[1, units[place]])
    return Wave(units, before[units], waits[0, units], sends[0, units], second)


def _tasks(graph: TaskGraph, num_stages: int) -> Index:
    """Rows of times that make up each unit: forward, dgrad and wgrad of each stage; a backward task is two of them."""
    nothing = 4 * num_stages
    found = np.full((2, graph.waits.shape[1]), nothing)
    second = np.concatenate([[False], graph.unit[1:] == graph.unit[:-1]]).astype(np.int64)
    found[second, graph.unit] = graph.kind * num_stages + graph.stage
    return found


def rows_of(forward_s: Array, dgrad_s: Array, wgrad_s: Array) -> Array:
    """Return the rows of times that waves count on, from times of stages, each (stage, plan)."""
    parts = {Kind.FORWARD: forward_s, Kind.DGRAD: dgrad_s, Kind.WGRAD: wgrad_s, Kind.BACKWARD: dgrad_s + wgrad_s}
    return np.concatenate([*(parts[kind] for kind in Kind), np.zeros((1, forward_s.shape[1]))])
