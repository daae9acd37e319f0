"""Messages of a bound program priced by the network: those that it prices alike in one row, then cut apart again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...ir.records import dataclass
from ..network.algorithms.algorithm import Collective
from ..network.collectives import CollectiveTime
from ..network.topology.layout import lay_out_placed
from .amounts import Array
from .binding import BoundProgram, CollectiveBatch
from .places import PlacedLevels


@dataclass(frozen=True, slots=True)
class GroupMessages:
    """The messages of one group, entries x points: their place in a row of messages that were priced together."""

    kind: Collective
    whole: CollectiveTime
    place: slice
    shape: tuple[int, int]

    @property
    def time_s(self) -> Array:
        """Seconds, entries x points."""
        found = np.asarray(self.whole.time_s)[self.place]
        return found.reshape(self.shape)

    @property
    def time(self) -> CollectiveTime:
        """What the network made of these alone."""
        return self.whole.part(self.kind, self.place)


def exchanges(
    bound: BoundProgram, values: Sequence[Array], places: PlacedLevels
) -> Mapping[tuple[int, int], GroupMessages]:
    """Price the messages of every table, evaluated to these values; by the place of table and group."""
    batches = [batch for _, part in bound.batches for batch in part]
    if not batches:
        return {}
    row = _Row(bound.num_machines)
    volume = row.of([values[t.table][t.rows] for t in batches])
    factors = _ranks(batches, values, row)
    which = None
    if len(places.levels) > 1:
        shapes = ((t.rows.size, values[t.table].shape[1]) for t in batches)
        which = row.of([np.broadcast_to(places.which[t.table], s) for t, s in zip(batches, shapes, strict=True)])
    shares = lay_out_placed(factors, places.levels, which)
    size, stride = factors[0]
    found: dict[tuple[int, int], GroupMessages] = {}
    start = 0
    for model, part in bound.batches:
        stop = start + sum(t.rows.size * row.points(values[t.table]) for t in part)
        whole = slice(start, stop)
        times = model.time(volume[whole], size[whole], stride[whole], [s.part_of(whole) for s in shares])
        found |= _cut(times, part, values, row)
        start = stop
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    """How messages are put in a row: one behind the other point by point, or under one another on all machines."""

    num_machines: int | None

    def of(self, parts: Sequence[Array]) -> Array:
        """Put tables of messages x points in a row."""
        if self.num_machines is None:
            return np.concatenate([part.reshape(-1) for part in parts])
        return np.concatenate([np.broadcast_to(part, (len(part), self.num_machines)) for part in parts])

    def points(self, values: Array) -> int:
        """Return how many places a message of a table takes in the row."""
        return values.shape[1] if self.num_machines is None else 1


def _ranks(batches: Sequence[CollectiveBatch], values: Sequence[Array], row: _Row) -> list[tuple[Array, Array]]:
    """Size and stride of every stretch of ranks, message by message."""
    found = []
    for k in range(len(batches[0].factors)):
        sizes = [values[t.table][t.factors[k][0]] for t in batches]
        strides = [values[t.table][t.factors[k][1]] for t in batches]
        if k == 0:
            sizes = [size / t.copies for size, t in zip(sizes, batches, strict=True)]
        found.append((row.of(sizes), row.of(strides)))
    return found


def _cut(
    whole: CollectiveTime, batches: Sequence[CollectiveBatch], values: Sequence[Array], row: _Row
) -> Mapping[tuple[int, int], GroupMessages]:
    found, start = dict[tuple[int, int], GroupMessages](), 0
    for batch in batches:
        num = row.points(values[batch.table])
        for place, message in batch.messages:
            shape = (len(message.group.entries), row.num_machines or num)
            stop = start + shape[0] * num
            found[batch.table, place] = GroupMessages(message.kind, whole, slice(start, stop), shape)
            start = stop
    return found
