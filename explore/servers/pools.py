"""Disaggregated prefill and decode under every load: all numbers of workers of a pair of units at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ...cost.serving.batching.times import Nums
from ...cost.serving.capacity import room, room_of_prompts
from ...cost.serving.disaggregated import PoolMetrics, PoolPair, most_in_flight
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


@dataclass(frozen=True, slots=True)
class PoolPiece:
    """Some candidates of a group of pools.

    Attributes:
        group: of all of them.
        servers: workers of prompts, and of answers.
        first: candidate of the group.
        last: the one behind the last.
    """

    group: ServerGroup
    servers: tuple[Server, Server]
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Many:
    """Pairs of pools that differ in numbers alone; each is a row of arrays of one column.

    Attributes:
        piece: whose pairs they are.
        place: of each in the group.
        pair: what they do.
        held: requests that both hold at once.
        codes: verdicts whatever the load.
    """

    piece: PoolPiece
    place: NDArray[np.intp]
    pair: PoolPair
    held: Array
    codes: Codes

    @classmethod
    def of(cls, space: ServingSpace, piece: PoolPiece, num_loads: int, prompts: float) -> Many:
        """Make the pairs of a piece, whose workers of prompts hold so many."""
        group, (first, then) = piece.group, piece.servers
        place = np.arange(piece.first // num_loads, -(-piece.last // num_loads))
        ways, batch = np.divmod(place[:, None], len(group.at_once))
        counts = (group.prompts[ways].astype(np.float64), group.workers[ways].astype(np.float64))
        gpus = [server.plan.num_gpus // server.plan.dp for server in piece.servers]
        at_once = np.array(group.at_once, dtype=np.float64)[batch]
        prefill = ManyPools(times=first.times, engine=first.engine, workers=counts[0], gpus=gpus[0], batch=at_once)
        decode = ManyPools(times=then.times, engine=then.engine, workers=counts[1], gpus=gpus[1])
        link = _links(space, then, counts[0] * gpus[0] + counts[1] * gpus[1])
        pair = PoolPair.of(prefill, decode, link, space.lengths)
        # Prompts that do not fit, and one request too slow.
        codes = missed(space, np.broadcast_to(pair.prompts.soonest_s, counts[0].shape), pair.tokens.tpot_s(1.0))
        codes[at_once > prompts] = TOO_MANY
        return cls(piece, place, pair, np.floor(most_in_flight(prefill, decode, pair.able)), codes)


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


def pools(space: ServingSpace, pieces: Sequence[PoolPiece]) -> list[Sorted]:
    """Sort the candidates of pieces of one setting, piece by piece; those that fit are solved all at once."""
    num_loads = len(space.batches) + space.has_target
    found = [_before_loads(space, piece, num_loads) for piece in pieces]
    many = [one for one in found if isinstance(one, Many)]
    left = [np.flatnonzero(one.codes[:, 0] == KEPT) for one in many]
    if not any(map(len, left)):
        return [_sorted(one, num_loads) if isinstance(one, Many) else one for one in found]
    pair = PoolPair.joined([one.pair for one in many], left)
    held = np.concatenate([one.held[rows] for one, rows in zip(many, left, strict=True)])
    solved, codes = _loads(space, pair, held)
    ends = np.cumsum([len(rows) for rows in left]).tolist()
    loads = iter([_Solved(pair, solved, codes, end - len(rows), rows) for end, rows in zip(ends, left, strict=True)])
    return [_sorted(one, num_loads, next(loads)) if isinstance(one, Many) else one for one in found]


def _before_loads(space: ServingSpace, piece: PoolPiece, num_loads: int) -> Many | Sorted:
    """What does not depend on loads; verdicts where no load has to be looked at."""
    prefill, decode = piece.servers
    prompts = float(room_of_prompts(prefill.times, prefill.engine.scheduler, space.lengths))
    if prompts < 1 or float(room(decode.times, decode.engine.scheduler, space.lengths)) < 1:
        num = piece.last - piece.first
        return Sorted({TOO_LARGE: num}, num)
    return Many.of(space, piece, num_loads, prompts)


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """Pairs under each load that is tried, those of many pieces below each other, and which of them are of a piece.

    Attributes:
        pair: what the pairs do.
        found: under each load.
        codes: verdicts of these.
        first: row of the first of the piece.
        rows: of the piece that are here.
    """

    pair: PoolPair
    found: PoolMetrics
    codes: Codes
    first: int
    rows: NDArray[np.intp]


def _sorted(many: Many, num_loads: int, solved: _Solved | None = None) -> Sorted:
    """Count the candidates of a piece, and make rows of those that are kept."""
    piece, codes = many.piece, np.repeat(many.codes, num_loads, axis=1)
    begin, num = piece.first - many.place[0] * num_loads, piece.last - piece.first
    if solved is not None:
        codes[solved.rows] = solved.codes[solved.first : solved.first + len(solved.rows)]
    mine = codes.ravel()[begin : begin + num]
    pruned, kept = counted(mine), begin + np.flatnonzero(mine == KEPT)
    if solved is None or not len(kept):
        return Sorted(pruned, num)
    rows = solved.first + np.searchsorted(solved.rows, kept // num_loads)
    return Sorted(pruned, num, _rows(piece, float(np.max(many.pair.able.batch)), solved, (rows, kept % num_loads)))


def _loads(space: ServingSpace, pair: PoolPair, held: Array) -> tuple[PoolMetrics, Codes]:
    """Closed forms under each load that is tried, those beyond the room as one request, and verdicts; a row a pair."""
    clients = pair.workers * np.array(space.batches, dtype=np.float64)
    fits = clients <= held

    def under(num: Array) -> PoolMetrics:
        return with_pool_tails(pair.under(num), pair, space.target)

    found = under(np.where(fits, clients, 1.0))
    codes = np.where(fits, verdicts(space, found.served), np.int8(TOO_MANY))
    if not space.has_target:
        return found, codes
    best = _most_within(space, under, held, clients, found)
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


def _rows(piece: PoolPiece, most: float, solved: _Solved, at: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Rows:
    """Rows of the pairs and loads at some places of a table; a worker of answers runs so many requests at most."""
    found, pair = solved.found, solved.pair
    shape = found.served.ttft_s.shape

    def of(column: Nums) -> Array:
        return np.asarray(np.broadcast_to(column, shape)[at])

    columns = {f.name: getattr(found.served, f.name) for f in fields(ServingMetrics)}
    served = replace(found.served, **{name: of(c) for name, c in columns.items() if isinstance(c, np.ndarray)})
    prefill, decode = piece.servers
    return Rows(
        piece.group,
        decode,
        prefill,
        of(pair.workers),
        of(pair.prompts.workers),
        of(pair.prompts.at_once),
        served,
        of(np.minimum(pair.able.prefill_per_s, pair.able.decode_per_s)),
        most,
        {name: of(getattr(found, name)) for name in OF_POOLS},
    )
