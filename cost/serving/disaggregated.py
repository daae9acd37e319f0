"""Prompts on some devices and answers on others: two pools, and the caches that go from one to the other.

A prefill worker takes prompts, `batch` at a time; its caches then go over a link to a decode worker, which runs nothing
but decodes. Requests a second are those of the slower pool,

    min(n_p b_p / t_prefill(b_p),  n_d b / ((output - 1) TPOT(b)))

and Little's law ties them to clients: requests in flight = rate x (TTFT + (output - 1) TPOT). TTFT is counted until the
decode worker has the cache. Sources: DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.errors import UsageError
from ...ir.records import dataclass
from .batching.static import batch_prefill_s
from .batching.steps import attention_over, decode_step_s, groups_of, way_in_s
from .batching.times import Array, Curve, Nums
from .capacity import max_batch
from .metrics import ServingMetrics
from .search import first_reaching
from .traffic.requests import Lengths
from .workers import CacheTransfer, Workers, at_once
from .workers import TransferLink as TransferLink
from .workers import WorkerGroup as WorkerGroup


def transfer_s(link: CacheTransfer, kv_bytes: Nums) -> Array:
    """Return the time of sending one request's cache: latency + bytes / bandwidth.

    >>> float(transfer_s(TransferLink(bytes_per_s=50e9, latency_s=1e-3), 1e9))
    0.021
    """
    return np.asarray(link.latency_s + np.asarray(kv_bytes, dtype=np.float64) / link.bytes_per_s)


def exposed_s(link: CacheTransfer, kv_bytes: Nums, prefill_s: Nums) -> Array:
    """Return what a transfer adds behind its prefill.

    All of it, or layer by layer what does not fit beside the prefill, and the last layer: `latency + max(0, send -
    prefill) + send / layers`, never more than all.
    """
    whole = transfer_s(link, kv_bytes)
    if link.layers == 1:
        return whole
    send = whole - link.latency_s
    left = np.maximum(send - np.asarray(prefill_s, dtype=np.float64), 0.0) + send / link.layers
    return np.asarray(link.latency_s + np.minimum(left, send))


@dataclass(frozen=True, slots=True, eq=False)
class PoolMetrics:
    """What two pools do under a load.

    Attributes:
        served: latencies and rates; `batch` is of one decode worker.
        prefill_busy: rate over the most that the prefill pool can do.
        decode_busy: the same of the decode pool.
        transfer_s: of one cache.
        gpus: devices of both pools.
    """

    served: ServingMetrics
    prefill_busy: Array
    decode_busy: Array
    transfer_s: Array
    gpus: Nums

    @property
    def limit(self) -> str:
        """The pool that would be full first."""
        return "prefill" if np.mean(self.prefill_busy) >= np.mean(self.decode_busy) else "decode"

    @property
    def tokens_per_s_per_gpu(self) -> Array:
        """Output tokens over all devices."""
        return self.served.output_tokens_per_s / self.gpus


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """What pools can do: requests a second of each, and of decode workers the batch with which they do it."""

    prefill_per_s: Array
    decode_per_s: Array
    batch: Array


def rates(prefill: Workers, decode: Workers, lengths: Lengths, attention: Curve | None = None) -> Rates:
    """Return the most requests a second of either pool. InfeasibleError where a cache cannot hold one request.

    `attention` is that of `attention_over` the decode workers' times, where it is known.
    """
    if (lengths.gaps < 1).any():
        raise UsageError(
            "output=1: the prefill makes the only token, and a decode pool has nothing to do; allowed: 2 or more"
        )
    most = max_batch(decode.times, decode.engine.scheduler, lengths)
    given = np.asarray(decode.batch, dtype=np.float64)
    room = np.asarray(np.where(given > 0, np.minimum(most, given), most))
    # Prompts a second: with pipeline stages the next batch follows in the pace of the slowest stage.
    num = at_once(prefill)
    groups = groups_of(prefill.times, num)
    one = prefill_pass_s(prefill, lengths, num) / (1.0 + (groups - 1.0) * prefill.times.pace)
    return Rates(
        np.asarray(prefill.workers * num / (one * groups * prefill.times.pace)),
        decode_rate(decode, lengths, room, attention),
        room,
    )


def decode_rate(decode: Workers, lengths: Lengths, batch: Nums, attention: Curve | None = None) -> Array:
    """Return requests a second of a decode pool with `batch` in flight on each worker."""
    tpot_s = decode_tpot_s(decode, lengths, batch, attention)
    return np.asarray(decode.workers * np.asarray(batch) / (lengths.gaps * tpot_s))


def decode_tpot_s(decode: Workers, lengths: Lengths, batch: Nums, attention: Curve | None = None) -> Array:
    """Return the time of a token on a decode worker with `batch` in flight."""
    return decode_step_s(decode.times, decode.engine.overheads, np.maximum(batch, 1.0), lengths, attention)


def prefill_pass_s(prefill: Workers, lengths: Lengths, num: Nums = 1.0) -> Array:
    """Return the time of `num` prompts on a prefill worker."""
    return batch_prefill_s(prefill.times, prefill.engine, num, lengths)


def disaggregated(
    prefill: Workers, decode: Workers, link: CacheTransfer, concurrency: Nums, lengths: Lengths
) -> PoolMetrics:
    """Return latencies and rates with `concurrency` requests in flight: each answer is followed by a new request.

    TTFT is request overhead + wait for a prefill worker + prefill + what the transfer adds, and beyond what both pools
    hold the wait that Little's law leaves. Its low is of one request alone, its high of the last of all sent at one
    moment.
    """
    clients = np.asarray(concurrency, dtype=np.float64)
    if (clients < 1).any():
        raise UsageError(f"concurrency={clients.min():g}; allowed: 1 or more requests in flight")
    attention = attention_over(decode.times, lengths)
    able = rates(prefill, decode, lengths, attention)
    both = np.broadcast_shapes(able.prefill_per_s.shape, able.decode_per_s.shape)
    shape = np.broadcast_shapes(clients.shape, both)
    clients = np.broadcast_to(clients, shape)
    # What the pools can do is the same for all numbers of clients.
    most = first_reaching(
        lambda b: decode_rate(decode, lengths, b, attention),
        able.prefill_per_s,
        np.zeros(both),
        np.broadcast_to(able.batch, both),
    )
    way = Way(prefill, decode, link, lengths)
    ttft_s = way.ttft_s(clients)

    def in_flight(batch: Array) -> Array:
        rate = decode_rate(decode, lengths, batch, attention)
        return np.asarray(rate * ttft_s(rate / able.prefill_per_s) + decode.workers * batch)

    batch = first_reaching(in_flight, clients, np.zeros(shape), np.broadcast_to(most, shape))
    rate = decode_rate(decode, lengths, batch, attention)
    first = ttft_s(rate / able.prefill_per_s)
    # Beyond what both pools hold, Little's law leaves a wait.
    waits = clients / rate - lengths.gaps * decode_tpot_s(decode, lengths, batch, attention)
    return _metrics(way, able, clients, batch, np.maximum(waits, first), attention)


def most_disaggregated(prefill: Workers, decode: Workers, link: CacheTransfer, lengths: Lengths) -> PoolMetrics:
    """Return what the pools do at the most requests a second of both: enough are always waiting.

    TTFT is that of a request that finds room at once, in prefill batches as full as the rate makes them.
    """
    attention = attention_over(decode.times, lengths)
    able = rates(prefill, decode, lengths, attention)
    rate = np.minimum(able.prefill_per_s, able.decode_per_s)
    batch = first_reaching(
        lambda b: decode_rate(decode, lengths, b, attention), rate, np.zeros_like(rate), able.batch + 0.0 * rate
    )
    way, tpot = Way(prefill, decode, link, lengths), decode_tpot_s(decode, lengths, batch, attention)
    least, fullest = way.least_s(), way.least_s(at_once(prefill))
    first = least + rate / able.prefill_per_s * (fullest - least)
    in_flight = np.maximum(rate * (first + lengths.gaps * tpot), 1.0)
    return _metrics(way, able, in_flight, batch, first, attention)


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """The way of a request to its decode worker."""

    prefill: Workers
    decode: Workers
    link: CacheTransfer
    lengths: Lengths

    @property
    def kv_bytes(self) -> Array:
        """Of the prompt, on the device that holds most of it at either end."""
        prompt = np.asarray(self.lengths.prompt, dtype=np.float64)
        return np.maximum(self.prefill.times.kv_bytes(prompt), self.decode.times.kv_bytes(prompt))

    def least_s(self, num: Nums = 1.0) -> Array:
        """With `num` prompts on an idle worker."""
        one = prefill_pass_s(self.prefill, self.lengths, num)
        return way_in_s(self.prefill.engine.overheads, self.lengths) + one + exposed_s(self.link, self.kv_bytes, one)

    def ttft_s(self, clients: Array) -> Callable[[Array], Array]:
        """Until the first token, over the share of the time for which the prefill workers are busy.

        The busier they are the fuller are their batches, and the longer is the queue: of `n` servers with a service
        time that is always the same (Sakasegawa 1977), and of no more clients than there are.
        """
        workers, num = np.asarray(self.prefill.workers, dtype=np.float64), at_once(self.prefill)
        served, least = prefill_pass_s(self.prefill, self.lengths, num), self.least_s()
        fuller = served - prefill_pass_s(self.prefill, self.lengths)
        others = np.maximum(1.0 - workers * num / clients, 0.0)
        longest = clients / (workers * num) * served

        def at(busy: Array) -> Array:
            full = np.minimum(busy, 1.0 - 1e-9)
            queue = served / workers * full ** (np.sqrt(2 * (workers + 1)) - 1) / (1 - full) / 2
            return np.asarray(least + others * (full * fuller + np.minimum(queue, longest)))

        return at

    def last_s(self, clients: Array) -> Array:
        """Until the first token of the last of all that were sent at one moment."""
        num = at_once(self.prefill)
        turns = np.ceil(clients / (self.prefill.workers * num))
        return np.asarray(self.least_s(num) + (turns - 1) * prefill_pass_s(self.prefill, self.lengths, num))


def _metrics(way: Way, able: Rates, clients: Array, batch: Array, ttft: Array, attention: Curve | None) -> PoolMetrics:
    lengths, decode = way.lengths, way.decode
    rate = decode_rate(decode, lengths, batch, attention)
    tpot = decode_tpot_s(decode, lengths, batch, attention)
    shape = ttft.shape
    served = ServingMetrics(
        concurrency=clients,
        batch=batch,
        decodes=np.maximum(batch, 1.0),
        prompt=np.broadcast_to(np.asarray(lengths.prompt, dtype=np.float64), shape),
        output=np.broadcast_to(np.asarray(lengths.output, dtype=np.float64), shape),
        ttft_s=ttft,
        ttft_low_s=np.broadcast_to(way.least_s(), shape),
        ttft_high_s=np.maximum(way.last_s(clients), ttft),
        tpot_s=tpot,
        requests_per_s=rate,
        stall_s=tpot,
    )
    gpus = way.prefill.workers * way.prefill.gpus + decode.workers * decode.gpus
    busy = rate / able.prefill_per_s, rate / able.decode_per_s
    return PoolMetrics(served, *busy, transfer_s(way.link, way.kv_bytes), gpus)
