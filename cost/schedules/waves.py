"""One schedule run for many plans at once: tasks that cannot wait for one another are done together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from .menu import schedule_of
from .simulate import TaskGraph, depths, graph_of
from .tasks import Array, Index, Kind, Order, Schedule


@dataclass(frozen=True, slots=True)
class Wave:
    """Units of tasks that may run at the same time, numbered one behind the other.

    Attributes:
        first: the first unit.
        stop: the one behind the last.
        before: the unit before each on its stage, or the row behind all units, which ends at 0.
        waits: the unit that each waits for, or that row.
        sends: the stage that sends what it waits for, or the number of stages for none.
        kind: what each does, as a row of seconds.
        late: units that gradients of weights come before: their places in the wave, their stages, how many.
        second: of joined tasks: their places in the wave, what they wait for too, and the stage that sends it.
    """

    first: int
    stop: int
    before: Index
    waits: Index
    sends: Index
    kind: Index
    late: tuple[Index, Index, Array]
    second: tuple[Index, Index, Index]


@dataclass(frozen=True, slots=True)
class Waves:
    """A schedule as waves of units, one behind the other.

    Attributes:
        waves: the waves.
        num_units: units in all.
        first: the first unit of each stage; it is a forward task.
        last: its last one.
        late: gradients of weights behind the last unit of each stage.
        rolls: whether stages go on to the next step without waiting for one another.
    """

    waves: tuple[Wave, ...]
    num_units: int
    first: Index
    last: Index
    late: Array
    rolls: bool

    def step_s(self, forward_s: Array, dgrad_s: Array, wgrad_s: Array, send_s: Array) -> Array:
        """Return the seconds of a step, plan by plan; times are those of each stage, as (stage, plan)."""
        seconds = np.concatenate([forward_s, dgrad_s, dgrad_s + wgrad_s, forward_s + dgrad_s + wgrad_s])
        sends = np.concatenate([send_s, np.zeros_like(send_s[:1])]) if send_s.any() else None
        end = np.zeros((self.num_units + 1, forward_s.shape[1]))
        for wave in self.waves:
            free = end[wave.before]
            place, stage, num = wave.late
            if len(place):
                free[place] += wgrad_s[stage] * num
            there = end[wave.waits]
            if sends is not None:
                there += sends[wave.sends]
            np.maximum(free, there, out=free)
            place, waits, sent = wave.second
            if len(place):
                free[place] = np.maximum(free[place], end[waits] if sends is None else end[waits] + sends[sent])
            np.add(free, seconds[wave.kind], out=end[wave.first : wave.stop])
        done = end[self.last] + wgrad_s * self.late
        if self.rolls:
            done = done - (end[self.first] - forward_s)
        return np.asarray(done.max(axis=0))


# Rows of seconds: forward, first part of the backward task, the whole of it, and a joined pair.
_ROW = {Kind.FORWARD: 0, Kind.DGRAD: 1, Kind.BACKWARD: 2}
_PAIR = 3


@lru_cache(maxsize=256)
def waves_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int) -> Waves:
    """Sort the tasks of a schedule into waves."""
    schedule = schedule_of(name, num_stages, num_micro_batches, num_chunks)
    late, behind = _late(schedule)
    graph = graph_of(_without_weights(schedule))
    num = graph.waits.shape[1]
    depth = np.array(depths(graph))
    order = np.argsort(depth, kind="stable")
    number = np.empty(num + 1, dtype=np.int64)
    number[order], number[num] = np.arange(num), num
    first, last = graph.first[:-1], graph.first[1:] - 1
    before = np.arange(num) - 1
    before[first] = num
    table = _Units(
        np.repeat(np.arange(num_stages), np.diff(graph.first)), number[before],
        number[np.where(graph.waits >= 0, graph.waits, num)],
        np.where(graph.sender >= 0, graph.stage[graph.sender], num_stages),
        _kinds(graph, num_stages), np.bincount(graph.unit, late).astype(np.float64),
    )  # fmt: skip
    edges = np.concatenate([[0], np.flatnonzero(np.diff(depth[order])) + 1, [num]])
    spans = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    waves = tuple(_wave(table, order[a:b], a, b, num) for a, b in spans)
    return Waves(waves, num, number[first], number[last], behind[:, None], schedule.rolls)


@dataclass(frozen=True, slots=True)
class _Units:
    """Every unit, stage by stage; units that it names are numbered wave by wave."""

    stage: Index
    before: Index
    waits: Index
    sends: Index
    kind: Index
    late: Array


def _wave(table: _Units, units: Index, first: int, stop: int, none: int) -> Wave:
    late = np.flatnonzero(table.late[units])
    two = np.flatnonzero(table.waits[1, units] != none)
    return Wave(
        first, stop, table.before[units], table.waits[0, units], table.sends[0, units], table.kind[units],
        (late, table.stage[units[late]], table.late[units[late], None]),
        (two, table.waits[1, units[two]], table.sends[1, units[two]]),
    )  # fmt: skip


def _without_weights(schedule: Schedule) -> Schedule:
    """No task waits for gradients of weights but the next one on the stage."""
    kept = [order.kind != Kind.WGRAD for order in schedule.orders]
    orders = [
        Order(o.chunk[k], o.micro_batch[k], o.kind[k], o.joined[k]) for o, k in zip(schedule.orders, kept, strict=True)
    ]
    return replace(schedule, orders=tuple(orders))


def _late(schedule: Schedule) -> tuple[Array, Array]:
    """Gradients of weights right before each other task, and behind the last one of each stage."""
    before: list[Array] = []
    behind: list[float] = []
    for order in schedule.orders:
        weights = order.kind == Kind.WGRAD
        so_far = np.cumsum(weights)[~weights]
        before.append(np.diff(so_far, prepend=0).astype(np.float64))
        behind.append(float(weights.sum() - so_far[-1]))
    return np.concatenate(before), np.array(behind)


def _kinds(graph: TaskGraph, num_stages: int) -> Index:
    """The row of seconds of each unit."""
    row = np.array([_ROW.get(kind, 0) for kind in Kind])[graph.kind]
    found = np.zeros(graph.waits.shape[1], dtype=np.int64)
    found[graph.unit] = row * num_stages + graph.stage
    joined = np.flatnonzero(graph.unit[1:] == graph.unit[:-1])
    found[graph.unit[joined]] = _PAIR * num_stages + graph.stage[joined]
    return found
