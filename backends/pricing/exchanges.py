"""Messages of a bound program priced by the network: those that it prices alike in one row, then cut apart again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..network.collectives import CollectiveTime
from ..network.topology.layout import lay_out_placed
from .amounts import Array
from .binding import BoundProgram, CollectiveBatch
from .places import PlacedLevels


def exchanges(
    bound: BoundProgram, values: Sequence[Array], places: PlacedLevels
) -> Mapping[tuple[int, int], CollectiveTime]:
    """Price the messages of every table, evaluated to these values; by the place of table and group."""
    batches = [batch for _, part in bound.batches for batch in part]
    if not batches:
        return {}
    num_machines = bound.num_machines
    volume = _in_row([values[t.table][t.rows] for t in batches], num_machines)
    factors = _ranks(batches, values, num_machines)
    which = None
    if len(places.levels) > 1:
        shapes = ((t.rows.size, values[t.table].shape[1]) for t in batches)
        wide = [np.broadcast_to(places.which[t.table], s) for t, s in zip(batches, shapes, strict=True)]
        which = _in_row(wide, num_machines)
    shares = lay_out_placed(factors, places.levels, which)
    size, stride = factors[0]
    found: dict[tuple[int, int], CollectiveTime] = {}
    start = 0
    for model, part in bound.batches:
        # How many places of the row a message of each batch takes.
        points = [values[t.table].shape[1] if num_machines is None else 1 for t in part]
        stop = start + sum(t.rows.size * num for t, num in zip(part, points, strict=True))
        whole = slice(start, stop)
        times = model.time(volume[whole], size[whole], stride[whole], [s.part_of(whole) for s in shares])
        begin = 0
        for batch, num in zip(part, points, strict=True):
            for place, message in batch.messages:
                end = begin + len(message.group.entries) * num
                found[batch.table, place] = times.part(message.kind, slice(begin, end))
                begin = end
        start = stop
    return found


def _in_row(parts: Sequence[Array], num_machines: int | None) -> Array:
    """Put tables of messages x points one behind the other; on a table of machines messages under one another."""
    if num_machines is None:
        return np.concatenate([part.reshape(-1) for part in parts])
    return np.concatenate([np.broadcast_to(part, (len(part), num_machines)) for part in parts])


def _ranks(
    batches: Sequence[CollectiveBatch], values: Sequence[Array], num_machines: int | None
) -> list[tuple[Array, Array]]:
    """Size and stride of every stretch of ranks, message by message."""
    found = []
    for k in range(len(batches[0].factors)):
        sizes = [values[t.table][t.factors[k][0]] for t in batches]
        strides = [values[t.table][t.factors[k][1]] for t in batches]
        if k == 0:
            sizes = [size / t.copies for size, t in zip(sizes, batches, strict=True)]
        found.append((_in_row(sizes, num_machines), _in_row(strides, num_machines)))
    return found
