"""Disaggregated prefill and decode under every load: all numbers of workers of a pair of units at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ...cost.serving.capacity import room, room_of_prompts
from ...cost.serving.disaggregated import PoolMetrics, PoolPair, Rates, Way, decode_tpot_s, most_in_flight, rates
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.pool_tails import with_pool_tails
from ...cost.serving.workers import ManyLinks, ManyPools
from ...driver.serve.drafts import num_layers
from ...driver.serve.pools import link_of
from ...driver.serve.server import Server
from ...ir.records import dataclass
from ..block import Array
from ..plans.job import TOO_LARGE
from .rows import OF_POOLS, Rows
from .space import ServingSpace
from .units import ServerGroup
from .verdicts import KEPT, SAME, TOO_MANY, Codes, Sorted, counted, missed, overrun, verdicts

# Loads between two tried ones that are looked at at a time for the most that meets what is asked: near where it should
# be, and apart from it.
_NEAR, _APART = np.array([-3.0, 0.0, 1.0, 4.0]), np.array([0.25, 0.5, 0.75])


@dataclass(frozen=True, slots=True, eq=False)
class Many:
    """Pairs of pools that differ in numbers alone; each is a row of arrays of one column.

    Attributes:
        prefill: workers of prompts.
        decode: workers of answers.
        link: what joins them.
        able: what they can do.
        held: requests that both hold at once.
    """

    prefill: ManyPools
    decode: ManyPools
    link: ManyLinks
    able: Rates
    held: Array

    @classmethod
    def of(
        cls, space: ServingSpace, group: ServerGroup, servers: tuple[Server, Server], place: NDArray[np.intp]
    ) -> Many:
        """Make some of the pairs of a group, by their place in it."""
        ways, batch = np.divmod(place[:, None], len(group.at_once))
        first, then = servers
        counts = (group.prompts[ways].astype(np.float64), group.workers[ways].astype(np.float64))
        gpus = [server.plan.num_gpus // server.plan.dp for server in servers]
        at_once = np.array(group.at_once, dtype=np.float64)[batch]
        prefill = ManyPools(times=first.times, engine=first.engine, workers=counts[0], gpus=gpus[0], batch=at_once)
        decode = ManyPools(times=then.times, engine=then.engine, workers=counts[1], gpus=gpus[1])
        able = rates(prefill, decode, space.lengths)
        held = np.floor(most_in_flight(prefill, decode, able))
        return cls(prefill, decode, _links(space, then, counts[0] * gpus[0] + counts[1] * gpus[1]), able, held)

    def under(self, space: ServingSpace) -> Callable[[Array], PoolMetrics]:
        """Return what says what the pools do with so many requests in flight; a row a pair."""
        pair = PoolPair.of(self.prefill, self.decode, self.link, space.lengths)
        both = self.prefill, self.decode
        return lambda clients: with_pool_tails(pair.under(clients), both, self.link, space.lengths, space.target)


def _links(space: ServingSpace, server: Server, num_gpus: Array) -> ManyLinks:
    """What joins pools on so many devices, as `serving.pools.link_of` has it."""
    layers = num_layers(server.served) if space.stream_kv else 1
    different, which = np.unique(num_gpus, return_inverse=True)
    links = [link_of(server.system, int(n), layers, space.kv_bytes_per_s) for n in different]
    rate, latency = (
        np.array(column)[which].reshape(num_gpus.shape)
        for column in ([link.bytes_per_s for link in links], [link.latency_s for link in links])
    )
    return ManyLinks(bytes_per_s=rate, latency_s=latency, layers=layers)


def pools(space: ServingSpace, group: ServerGroup, servers: tuple[Server, Server], first: int, last: int) -> Sorted:
    """Sort the candidates of a group of pools from `first` to before `last`; `servers` are of prompts, of answers."""
    prefill, decode = servers
    prompts = float(room_of_prompts(prefill.times, prefill.engine.scheduler, space.lengths))
    if prompts < 1 or float(room(decode.times, decode.engine.scheduler, space.lengths)) < 1:
        return Sorted({TOO_LARGE: last - first}, last - first)
    num_loads = len(space.batches) + space.has_target
    place = np.arange(first // num_loads, -(-last // num_loads))
    codes = np.repeat(_of_one(space, group, servers, place, prompts), num_loads, axis=1)
    left = np.flatnonzero(codes[:, 0] == KEPT)
    begin, end = first - place[0] * num_loads, last - place[0] * num_loads
    if not len(left):
        return Sorted(counted(codes.ravel()[begin:end]), last - first)
    many = Many.of(space, group, servers, place[left])
    found, codes[left] = _loads(space, many)
    kept = begin + np.flatnonzero(codes.ravel()[begin:end] == KEPT)
    pruned = counted(codes.ravel()[begin:end])
    if not len(kept):
        return Sorted(pruned, last - first)
    of_left = np.searchsorted(left, kept // num_loads)
    return Sorted(pruned, last - first, _rows(group, servers, many, found, (of_left, kept % num_loads)))


def _of_one(
    space: ServingSpace, group: ServerGroup, servers: tuple[Server, Server], place: NDArray[np.intp], prompts: float
) -> Codes:
    """What is wrong with pairs whatever the load, a row a pair: prompts that do not fit, and one request too slow."""
    many = Many.of(space, group, servers, place)
    least = Way(many.prefill, many.decode, many.link, space.lengths).soonest_s
    codes = missed(space, least, decode_tpot_s(many.decode, space.lengths, 1.0))
    codes[many.prefill.batch > prompts] = TOO_MANY
    return codes


def _loads(space: ServingSpace, many: Many) -> tuple[PoolMetrics, Codes]:
    """Closed forms under each load that is tried, those beyond the room as one request, and verdicts; a row a pair."""
    clients = many.decode.workers * np.array(space.batches, dtype=np.float64)
    fits = clients <= many.held
    under = many.under(space)
    found = under(np.where(fits, clients, 1.0))
    codes = np.where(fits, verdicts(space, found.served), np.int8(TOO_MANY))
    if not space.has_target:
        return found, codes
    best = _most_within(space, under, many.held, clients, found)
    last = under(np.maximum(best, 1.0))
    same = ((clients == best) & fits).any(axis=1, keepdims=True)
    return _beside(found, last), np.hstack([codes, np.where(same, np.int8(SAME), verdicts(space, last.served))])


def _most_within(
    space: ServingSpace, under: Callable[[Array], PoolMetrics], held: Array, clients: Array, found: PoolMetrics
) -> Array:
    """The most requests in flight that meet what is asked, one column; zero where none do.

    Latencies never fall as requests grow, so it lies between the last load that is kept and the next: near where a line
    between both is at what is asked.
    """
    over = overrun(space, found.served)
    known = clients <= held
    low = np.max(np.where(known & (over <= 1.0), clients, 0.0), axis=1, keepdims=True)
    high = np.min(np.where(known & (over > 1.0) & (clients > low), clients, held + 1.0), axis=1, keepdims=True)
    at_low, at_high = (_of_load(over, known & (clients == at)) for at in (low, high))
    while ((wide := high - low) > 1.0).any():
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (1.0 - at_low) / (at_high - at_low)
        near = np.floor(low + wide * np.where(np.isfinite(share), np.clip(share, 0.0, 1.0), 0.5))
        tried = np.hstack([near + _NEAR, np.floor(low + wide * _APART)])
        tried = np.clip(tried, np.maximum(low, 1.0), np.maximum(high - 1.0, 1.0))
        tried = np.where(wide > 1.0, np.maximum(tried, low + 1.0), np.maximum(low, 1.0))
        over = overrun(space, under(tried).served)
        more = np.max(np.where(over <= 1.0, tried, low), axis=1, keepdims=True)
        less = np.min(np.where(~(over <= 1.0) & (tried > more), tried, high), axis=1, keepdims=True)
        at_low = np.where(more > low, _of_load(over, tried == more), at_low)
        at_high = np.where(less < high, _of_load(over, tried == less), at_high)
        low, high = np.where(wide > 1.0, more, low), np.where(wide > 1.0, less, high)
    return np.asarray(low)


def _of_load(over: Array, which: NDArray[np.bool_]) -> Array:
    """One column: what belongs to a load that each row names, infinite where it names none."""
    return np.asarray(np.min(np.where(which, over, np.inf), axis=1, keepdims=True))


def _beside(one: PoolMetrics, more: PoolMetrics) -> PoolMetrics:
    """Put the columns of two side by side."""
    pairs = ((f.name, getattr(one.served, f.name), getattr(more.served, f.name)) for f in fields(ServingMetrics))
    served = {name: np.hstack([a, b]) for name, a, b in pairs if isinstance(a, np.ndarray)}
    return PoolMetrics(
        replace(one.served, **served),
        np.hstack([one.prefill_busy, more.prefill_busy]),
        np.hstack([one.decode_busy, more.decode_busy]),
        one.transfer_s,
        one.gpus,
    )


def _rows(
    group: ServerGroup,
    servers: tuple[Server, Server],
    many: Many,
    found: PoolMetrics,
    at: tuple[NDArray[np.intp], NDArray[np.intp]],
) -> Rows:
    """Rows of the pairs and loads at some places of a table."""
    shape = found.served.ttft_s.shape

    def of(column: Array) -> Array:
        return np.asarray(np.broadcast_to(column, shape)[at])

    columns = {f.name: getattr(found.served, f.name) for f in fields(ServingMetrics)}
    served = replace(found.served, **{name: of(c) for name, c in columns.items() if isinstance(c, np.ndarray)})
    prefill, decode = servers
    return Rows(
        group,
        decode,
        prefill,
        of(many.decode.workers),
        of(many.prefill.workers),
        of(np.asarray(many.prefill.batch)),
        served,
        of(np.minimum(many.able.prefill_per_s, many.able.decode_per_s)),
        float(np.max(many.able.batch)),
        {name: of(getattr(found, name)) for name in OF_POOLS},
    )
