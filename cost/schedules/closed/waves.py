"""Steps of schedules run for many plans at once: tasks that cannot wait for one another are done together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ....ir.records import dataclass
from ....ir.schedules.kind import Kind
from ..simulate import MOST_STEPS, SETTLED, TaskGraph, depths, graph_of
from ..tasks import Array, Index, Order, Schedule, schedule_of

# Rows of seconds: forward, first part of the backward task, the whole of it, and a joined pair.
_ROW = {Kind.FORWARD: 0, Kind.DGRAD: 1, Kind.BACKWARD: 2}
_PAIR = 3
# Numbers that one table holds, and fewest plans that it has.
_HELD, _NARROW = 1_500_000, 16


@dataclass(frozen=True, slots=True)
class Units:
    """The tasks of a step in units that start together, stage by stage.

    All that they read are rows of one table: ends of units, a row of zeros, seconds of tasks of each kind and stage,
    seconds of gradients of weights, and when each stage may start.

    Attributes:
        depth: units on the longest chain that ends with each.
        reads: the rows that each reads, as (5, unit): the end of the one before it on its stage, the end of what it
            waits for, what it takes, gradients of weights that come before it, and of a joined one, what it waits for
            too. The row of zeros stands for nothing.
        sends: the stages that send what it waits for, or the number of stages for none, as (2, unit).
        weights: stage and number of each row of gradients of weights.
        first: the first unit of each stage; it is a forward task.
        last: its last one.
        behind: gradients of weights behind it, as (stage, 1).
        rolls: whether stages go on to the next step without waiting for one another.
    """

    depth: NDArray[np.int32]
    reads: NDArray[np.int32]
    sends: NDArray[np.int32]
    weights: tuple[Index, Array]
    first: Index
    last: Index
    behind: Array
    rolls: bool

    @property
    def num_known(self) -> int:
        """Rows of the table that are no ends of units."""
        return 1 + 5 * len(self.first) + len(self.weights[0])

    def fill(self, table: Array, times: Array) -> None:
        """Write all rows that are no ends of units; times are as of `steps_s`."""
        forward_s, dgrad_s, wgrad_s, _ = times
        stage, num = self.weights
        table[0] = 0.0
        known = [forward_s, dgrad_s, dgrad_s + wgrad_s, forward_s + dgrad_s + wgrad_s, wgrad_s[stage] * num[:, None]]
        np.concatenate([*known, np.zeros_like(forward_s)], out=table[1:])


@lru_cache(maxsize=2048)
def units_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int) -> Units:
    """Link the tasks of a step of a schedule."""
    schedule = schedule_of(name, num_stages, num_micro_batches, num_chunks)
    late, behind = _late(schedule)
    # No task waits for gradients of weights but the next one on the stage.
    kept = [order.kind != Kind.WGRAD for order in schedule.orders]
    orders = [
        Order(o.chunk[k], o.micro_batch[k], o.kind[k], o.joined[k]) for o, k in zip(schedule.orders, kept, strict=True)
    ]
    graph = graph_of(replace(schedule, orders=tuple(orders)))
    first, num = graph.first[:-1], graph.waits.shape[1]
    stage = np.repeat(np.arange(num_stages), np.diff(graph.first))
    weights, row = _weights(np.bincount(graph.unit, late).astype(np.int64), stage, num_stages)
    known = num + 1 + 4 * num_stages
    before = np.arange(num) - 1
    before[first] = known + len(weights[0]) + np.arange(num_stages)
    waits = np.where(graph.waits >= 0, graph.waits, num)
    reads = [before, waits[0], num + 1 + _kinds(graph, num_stages), np.where(row >= 0, known + row, num), waits[1]]
    sends = np.where(graph.sender >= 0, graph.stage[graph.sender], num_stages)
    # Half as long numbers: a search keeps the tasks of a thousand schedules.
    return Units(
        np.array(depths(graph), dtype=np.int32),
        np.stack(reads).astype(np.int32),
        sends.astype(np.int32),
        weights,
        first,
        graph.first[1:] - 1,
        behind[:, None],
        schedule.rolls,
    )


@dataclass(frozen=True, slots=True)
class Waves:
    """Steps of several schedules side by side, as waves of units that may run at the same time.

    In one table stand the ends of the units of all, wave behind wave, then what is known of each schedule.

    Attributes:
        units: of each schedule.
        known: where the known rows of each start, and the number of rows in all.
        first: the first unit of each wave, and the number of units.
        start: where the rows that each wave reads start in `rows`, and how many there are in all.
        rows: of each wave, for each of its units the end of the one before it on its stage, behind these the ends of
            those that they wait for, then what each takes, and if any has some, the gradients of weights before it.
        sends: the row of seconds of messages of what each unit waits for.
        joined: of joined tasks, wave behind wave: their places in the wave, what they wait for too, and the row of
            seconds of its message, as (3, unit).
        start_joined: where those of each wave start, and how many there are in all.
        ends: the first and the last unit of every stage, schedule behind schedule, as (2, stage).
    """

    units: Sequence[Units]
    known: Sequence[int]
    first: Sequence[int]
    start: Sequence[int]
    rows: Index
    sends: Index
    joined: Index
    start_joined: Sequence[int]
    ends: Index

    @classmethod
    def of(cls, units: Sequence[Units]) -> Waves:
        """Sort the units of several schedules into waves."""
        nums = [len(one.depth) for one in units]
        num, each = sum(nums), np.repeat(np.arange(len(units)), nums)
        depth = np.concatenate([one.depth for one in units])
        order = np.argsort(depth.astype(np.uint16) if depth.max() < 2**16 else depth, kind="stable")
        number = np.empty(num, dtype=np.intp)
        number[order] = np.arange(num)
        known = _starts([one.num_known for one in units], num)
        # The row of the table of all that each row of the table of one is.
        parts = zip(np.split(number, np.cumsum(nums)[:-1]), pairwise(known.tolist()), strict=True)
        place = np.concatenate([part for own, (a, b) in parts for part in (own, np.arange(a, b))])
        base = _starts([a + one.num_known for a, one in zip(nums, units, strict=True)])[:-1]
        before, waits, takes, late, other = place[
            np.concatenate([one.reads + b for one, b in zip(units, base.tolist(), strict=True)], axis=1)
        ][:, order]
        senders = _starts([len(one.first) + 1 for one in units])[:-1].tolist()
        sends = np.concatenate([one.sends + b for one, b in zip(units, senders, strict=True)], axis=1)[:, order]
        nothing = known[each[order]]
        first = np.flatnonzero(np.diff(depth[order], prepend=-1))
        width = np.diff(first, append=num)
        wave = np.repeat(np.arange(len(first)), width)
        read = 3 + np.maximum.reduceat(late != nothing, first)
        start = _starts(width * read)
        # Part k of what a wave reads stands behind k parts, each as long as the wave.
        at = start[wave] + np.arange(num) - first[wave]
        rows = np.empty(start[-1], dtype=np.intp)
        for k, part in enumerate((before, waits, takes)):
            rows[at + k * width[wave]] = part
        has = read[wave] > 3
        rows[(at + 3 * width[wave])[has]] = late[has]
        two = np.flatnonzero(other != nothing)
        ends = [np.stack([one.first, one.last]) + b for one, b in zip(units, _starts(nums)[:-1].tolist(), strict=True)]
        return cls(
            units,
            known.tolist(),
            [*first.tolist(), num],
            start.tolist(),
            rows,
            sends[0],
            np.stack([two - first[wave[two]], other[two], sends[1, two]]),
            np.searchsorted(wave[two], np.arange(len(first) + 1)).tolist(),
            number[np.concatenate(ends, axis=1)],
        )

    def steps_s(self, times: Sequence[Array]) -> Array:
        """Return the seconds of a step of each schedule, as (schedule, plan), from times as of `steps_s`.

        Where stages do not wait for one another at the end of a step, the time from one step to the next: see
        `simulate.run`.
        """
        table = np.empty((self.known[-1], times[0].shape[2]))
        for one, own, (start, stop) in zip(self.units, times, pairwise(self.known), strict=True):
            one.fill(table[start:stop], own)
        sends = None
        if any(own[3].any() for own in times):
            sends = np.concatenate([part for own in times for part in (own[3], np.zeros_like(own[3, :1]))])
        behind = np.concatenate([own[2] * one.behind for one, own in zip(self.units, times, strict=True)])
        stages = [len(one.first) for one in self.units]
        begins, of = _starts(stages)[:-1], np.repeat(np.arange(len(stages)), stages)
        done = self._done(table, sends, behind)
        if not self.units[0].rolls:
            return np.asarray(np.maximum.reduceat(done, begins))
        clock = np.concatenate([np.arange(b - n, b) for n, b in zip(stages, self.known[1:], strict=True)])
        spans = done - (table[self.ends[0]] - np.concatenate([own[0] for own in times]))
        found = np.maximum.reduceat(spans, begins)
        left = np.ones(found.shape, dtype=np.bool_)
        for _ in range(MOST_STEPS):
            began = done - np.minimum.reduceat(done, begins)[of]
            table[clock] = began
            done = self._done(table, sends, behind)
            spans = done - began
            longest = np.maximum.reduceat(spans, begins)
            # A plan that is settled stays as it is, however long others take.
            found[left] = longest[left]
            left &= longest - np.minimum.reduceat(spans, begins) > SETTLED * found
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
        return np.asarray(table[self.ends[1]] + behind)


def steps_s(asked: Sequence[tuple[Units, Array]]) -> list[Array]:
    """Return the seconds of steps of schedules, plan by plan.

    Times are those of each stage, forward, dgrad, wgrad and send seconds, as (4, stage, plan). A wave costs a few array
    operations, however many schedules and plans it is of: so schedules of about as many waves run side by side.
    """
    found = [np.empty(times.shape[2]) for _, times in asked]
    pieces: dict[tuple[bool, int], list[tuple[int, int]]] = {}
    for k, (units, times) in enumerate(asked):
        num = times.shape[2]
        width = _NARROW
        while width < num and 2 * width * len(units.depth) <= _HELD:
            width *= 2
        pieces.setdefault((units.rolls, width), []).extend((k, start) for start in range(0, num, width))
    for (_, width), some in pieces.items():
        some.sort(key=lambda piece: int(asked[piece[0]][0].depth.max()))
        for group in _groups(asked, some, width):
            # Columns that a schedule has too few plans for have those of its last one.
            columns = [np.minimum(np.arange(start, start + width), len(found[k]) - 1) for k, start in group]
            waves = Waves.of([asked[k][0] for k, _ in group])
            own = [asked[k][1][..., which] for (k, _), which in zip(group, columns, strict=True)]
            for (k, _), which, seconds in zip(group, columns, waves.steps_s(own), strict=True):
                found[k][which] = seconds
    return found


def _groups(
    asked: Sequence[tuple[Units, Array]], pieces: Sequence[tuple[int, int]], width: int
) -> Iterator[Sequence[tuple[int, int]]]:
    """Put pieces together that one table holds."""
    group, held = list[tuple[int, int]](), 0
    for piece in pieces:
        num = len(asked[piece[0]][0].depth) * width
        if group and held + num > _HELD:
            yield group
            group, held = [], 0
        group.append(piece)
        held += num
    yield group


def _starts(nums: Sequence[int] | Index, first: int = 0) -> Index:
    """Where each of some parts starts, and the last one ends."""
    return first + np.concatenate([[0], np.cumsum(nums)])


def _weights(late: Index, stage: Index, num_stages: int) -> tuple[tuple[Index, Array], Index]:
    """Distinct stages and numbers of gradients of weights that come before units; which of these, or -1, a unit has."""
    code = np.where(late > 0, late * num_stages + stage, -1)
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
