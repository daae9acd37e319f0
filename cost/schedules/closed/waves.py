"""One schedule run for many plans at once: tasks that cannot wait for one another are done together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ....ir.records import dataclass
from ....ir.schedules.kind import Kind
from ..simulate import MOST_STEPS, SETTLED, TaskGraph, depths, graph_of
from ..tasks import Array, Index, Order, Schedule, schedule_of


@dataclass(frozen=True, slots=True)
class Waves:
    """A step of a schedule as waves of units, one behind the other; units of a wave may run at the same time.

    Units are numbered wave behind wave. All that they read are rows of one table: ends of units, a row of zeros,
    seconds of tasks, seconds of gradients of weights, and when each stage may start.

    Attributes:
        first: the first unit of each wave, and the number of units.
        start: where the rows of each wave start in `rows`, and how many there are in all.
        rows: of each wave, for each of its units the end of the one before it on its stage, behind these the ends of
            those that they wait for, then what each takes, and if any has some, the gradients of weights before it.
        sends: the stage that sends what each unit waits for, or the number of stages for none.
        joined: of joined tasks, wave behind wave: their places in the wave, what they wait for too, and the stage that
            sends it, as (3, unit).
        start_joined: where those of each wave start, and how many there are in all.
        weights: stage and number of each row of gradients of weights.
        first_of: the first unit of each stage; it is a forward task.
        last_of: its last one.
        late: gradients of weights behind it, as (stage, 1).
        rolls: whether stages go on to the next step without waiting for one another.
    """

    first: Sequence[int]
    start: Sequence[int]
    rows: Index
    sends: Index
    joined: Index
    start_joined: Sequence[int]
    weights: tuple[Index, Array]
    first_of: Index
    last_of: Index
    late: Array
    rolls: bool

    @property
    def num_units(self) -> int:
        """Units in all; behind their rows in the table stands the row of zeros."""
        return self.first[-1]

    def step_s(self, forward_s: Array, dgrad_s: Array, wgrad_s: Array, send_s: Array) -> Array:
        """Return the seconds of a step, plan by plan; times are those of each stage, as (stage, plan).

        Where stages do not wait for one another at the end of a step, the time from one step to the next: see
        `simulate.run`.
        """
        table = self._table(forward_s, dgrad_s, wgrad_s)
        clock = table[-len(self.first_of) :]
        sends = np.concatenate([send_s, np.zeros_like(send_s[:1])]) if send_s.any() else None
        behind = wgrad_s * self.late
        done = self._done(table, sends, behind)
        if not self.rolls:
            return np.asarray(done.max(axis=0))
        spans = done - (table[self.first_of] - forward_s)
        found, left = spans.max(axis=0), np.ones(spans.shape[1], dtype=np.bool_)
        for _ in range(MOST_STEPS):
            clock[:] = done - done.min(axis=0)
            done = self._done(table, sends, behind)
            spans = done - clock
            # A plan that is settled stays as it is, however long others take.
            found[left] = spans.max(axis=0)[left]
            left &= spans.max(axis=0) - spans.min(axis=0) > SETTLED * found
            if not left.any():
                break
        return np.asarray(found)

    def _done(self, table: Array, sends: Array | None, behind: Array) -> Array:
        """Run the waves, and return when each stage is done, as (stage, plan)."""
        held = np.empty((max(stop - start for start, stop in pairwise(self.start)), table.shape[1]))
        bounds = zip(*map(pairwise, (self.first, self.start, self.start_joined)), strict=True)
        for (first, stop), (start, end), (some, more) in bounds:
            num, found = stop - first, held[: end - start]
            table.take(self.rows[start:end], axis=0, out=found, mode="clip")
            free, there = found[:num], found[num : 2 * num]
            if len(found) > 3 * num:
                np.add(free, found[3 * num :], out=free)
            if sends is not None:
                there += sends[self.sends[first:stop]]
            np.maximum(free, there, out=free)
            if more > some:
                place, waits, sent = self.joined[:, some:more]
                other = table[waits] if sends is None else table[waits] + sends[sent]
                free[place] = np.maximum(free[place], other)
            np.add(free, found[2 * num : 3 * num], out=table[first:stop])
        return np.asarray(table[self.last_of] + behind)

    def _table(self, forward_s: Array, dgrad_s: Array, wgrad_s: Array) -> Array:
        """Rows of units, still to be filled, then all that is known of a stage."""
        both = dgrad_s + wgrad_s
        stage, num = self.weights
        every = forward_s + dgrad_s + wgrad_s
        known = [forward_s, dgrad_s, both, every, wgrad_s[stage] * num[:, None], np.zeros_like(forward_s)]
        table = np.empty((self.num_units + 1 + sum(map(len, known)), forward_s.shape[1]))
        table[self.num_units] = 0.0
        np.concatenate(known, out=table[self.num_units + 1 :])
        return table


# Rows of seconds: forward, first part of the backward task, the whole of it, and a joined pair.
_ROW = {Kind.FORWARD: 0, Kind.DGRAD: 1, Kind.BACKWARD: 2}
_PAIR = 3


@lru_cache(maxsize=1024)
def waves_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int) -> Waves:
    """Sort the tasks of a step of a schedule into waves."""
    schedule = schedule_of(name, num_stages, num_micro_batches, num_chunks)
    units = _Units.of(schedule, num_stages)
    num = len(units.depth)
    order = np.argsort(units.depth, kind="stable")
    number = np.empty(num + 1, dtype=np.int64)
    number[order], number[-1] = np.arange(num), num
    weights, row = _weights(units, num_stages)
    late = num + 1 + 4 * num_stages
    clock = late + len(weights[0])
    # Of each unit, in the order of the waves, the rows that it reads.
    parts = np.stack(
        [
            np.where(units.before >= 0, number[units.before], clock + units.stage),
            number[units.waits[0]],
            num + 1 + units.kind,
            np.where(row >= 0, late + row, num),
        ]
    )[:, order]
    first = np.flatnonzero(np.diff(units.depth[order], prepend=-1))
    width = np.diff(first, append=num)
    wave = np.repeat(np.arange(len(first)), width)
    each = 3 + (np.maximum.reduceat(parts[3] != num, first))
    start = np.concatenate([[0], np.cumsum(width * each)])
    # Part k of a wave stands behind k parts, each as long as the wave.
    at = start[wave] + np.arange(num) - first[wave] + np.arange(4)[:, None] * width[wave]
    there = np.arange(4)[:, None] < each[wave]
    rows = np.empty(start[-1], dtype=np.intp)
    rows[at[there]] = parts[there]
    waits, sends = number[units.waits[1, order]], units.sends[:, order]
    two = np.flatnonzero(waits != num)
    return Waves(
        [*first.tolist(), num],
        start.tolist(),
        rows,
        sends[0],
        np.stack([two - first[wave[two]], waits[two], sends[1, two]]),
        np.searchsorted(wave[two], np.arange(len(first) + 1)).tolist(),
        weights,
        number[units.first],
        number[units.last],
        units.behind[:, None],
        schedule.rolls,
    )


@dataclass(frozen=True, slots=True)
class _Units:
    """Every unit of a step, stage by stage; of what a unit waits for, -1 is nothing.

    Attributes:
        depth: units on the longest chain that ends with it.
        stage: its stage.
        before: the unit before it on its stage.
        waits: up to two units whose results it needs, as (2, unit).
        sends: the stages that send these, or the number of stages for none.
        kind: the row of seconds that it takes.
        late: gradients of weights that come before it.
        first: the first unit of each stage.
        last: its last one.
        behind: gradients of weights behind that.
    """

    depth: Index
    stage: Index
    before: Index
    waits: Index
    sends: Index
    kind: Index
    late: Index
    first: Index
    last: Index
    behind: Array

    @classmethod
    def of(cls, schedule: Schedule, num_stages: int) -> _Units:
        """Link the tasks of a step."""
        late, behind = _late(schedule)
        # No task waits for gradients of weights but the next one on the stage.
        kept = [order.kind != Kind.WGRAD for order in schedule.orders]
        orders = [
            Order(o.chunk[k], o.micro_batch[k], o.kind[k], o.joined[k])
            for o, k in zip(schedule.orders, kept, strict=True)
        ]
        graph = graph_of(replace(schedule, orders=tuple(orders)))
        first, num = graph.first[:-1], graph.waits.shape[1]
        before = np.arange(num) - 1
        before[first] = -1
        sends = np.where(graph.sender >= 0, graph.stage[graph.sender], num_stages)
        stage = np.repeat(np.arange(num_stages), np.diff(graph.first))
        count = np.bincount(graph.unit, late).astype(np.int64)
        return cls(
            np.array(depths(graph)),
            stage,
            before,
            graph.waits,
            sends,
            _kinds(graph, num_stages),
            count,
            first,
            graph.first[1:] - 1,
            behind,
        )


def _weights(units: _Units, num_stages: int) -> tuple[tuple[Index, Array], Index]:
    """Distinct stages and numbers of gradients of weights that come before units; which of these, or -1, a unit has."""
    code = np.where(units.late > 0, units.late * num_stages + units.stage, -1)
    codes, row = np.unique(code, return_inverse=True)
    none = int(codes[0] == -1)
    found = codes[none:]
    return (found % num_stages, (found // num_stages).astype(np.float64)), row.reshape(-1) - none


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
