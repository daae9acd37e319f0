"""Replicas that do both phases, under every load that is tried: one closed form for all numbers of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...cost.serving.batching.continuous import steady
from ...cost.serving.batching.static import static_batch
from ...cost.serving.capacity import room
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.traffic.requests import Lengths
from ...driver.serve.server import Server
from ..block import Array
from ..plans.job import TOO_LARGE
from .rows import Rows, taken
from .space import ServingSpace
from .units import Group
from .verdicts import KEPT, SAME, TOO_MANY, Codes, Sorted, counted, verdicts


def replicas(space: ServingSpace, group: Group, server: Server, first: int, last: int) -> Sorted:
    """Sort the candidates of a group of replicas from `first` to before `last`."""
    lengths = space.lengths
    most = int(room(server.times, server.engine.scheduler, lengths, _together(server)))
    if most < 1:
        return Sorted({TOO_LARGE: last - first}, last - first)
    loads, codes = _loads(space, server, most)
    place, load = np.divmod(np.arange(first, last), len(codes))
    mine = codes[load]
    kept = np.flatnonzero(mine == KEPT)
    if not len(kept):
        return Sorted(counted(mine), last - first)
    return Sorted(counted(mine), last - first, _rows(group, server, lengths, loads, place[kept], load[kept], most))


def _loads(space: ServingSpace, server: Server, most: int) -> tuple[ServingMetrics, Codes]:
    """Closed forms of one replica under each load that is tried, those beyond its room as the first, and verdicts."""
    tried = np.array(space.batches, dtype=np.float64)
    fits = tried <= most
    best = _most_within(space, server, most) if space.has_target else np.zeros(0)
    found = _under(server, np.concatenate([np.where(fits, tried, 1.0), np.maximum(best, 1.0)]), space.lengths)
    codes = verdicts(space, found)
    codes[: len(tried)][~fits] = TOO_MANY
    codes[len(tried) :][np.isin(best, tried[fits])] = SAME
    return found, codes


def _most_within(space: ServingSpace, server: Server, most: int) -> Array:
    """The most requests that meet what is asked, one where none do."""
    tried = np.arange(1.0, most + 1.0)
    good = np.flatnonzero(verdicts(space, _under(server, tried, space.lengths)) == KEPT)
    return tried[good[-1:]] if len(good) else np.zeros(1)


def _under(server: Server, batch: Array, lengths: Lengths) -> ServingMetrics:
    form = static_batch if _together(server) else steady
    return form(server.times, server.engine, batch, lengths)


def _together(server: Server) -> bool:
    return server.engine.scheduler.batching == "static"


def _rows(
    group: Group, server: Server, lengths: Lengths, loads: ServingMetrics, place: NDArray[np.intp],
    load: NDArray[np.intp], most: int,
) -> Rows:  # fmt: skip
    together, num = _together(server), len(place)
    able = server.most_together(lengths) if together else float(server.most(lengths).requests_per_s)
    none = np.zeros(num)
    return Rows(group, server, None, group.workers[place].astype(np.float64), none, none, taken(loads, load),
                np.full(num, able), float(most), {}, together)  # fmt: skip
