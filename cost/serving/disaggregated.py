"""Prompts on some devices and answers on others: two pools, and the caches that go from one to the other.

A prefill worker takes prompts, `batch` at a time; its caches then go over a link to a decode worker, which runs nothing
but decodes. Requests a second are those of the slower pool,

    min(n_p b_p / t_prefill(b_p),  n_d b / ((output - 1) TPOT(b)))

and Little's law ties them to clients: requests in flight = rate x (TTFT + (output - 1) TPOT). TTFT is counted until the
decode worker has the cache. Sources: DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UsageError
from ...ir.records import dataclass
from .batching.static import batch_prefill_s
from .batching.steps import attention_over, decode_step_s, groups_of, way_in_s
from .batching.times import Array, Curve, Nums
from .capacity import max_batch
from .metrics import ServingMetrics
from .search import first_reaching, first_reaching_each
from .traffic.requests import Lengths
from .workers import CacheTransfer, ManyPools, Workers, at_once
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


def most_in_flight(prefill: Workers, decode: Workers, able: Rates) -> Array:
    """Return the requests that both pools hold at most: sequences of all decode workers, and prompts that run."""
    return np.asarray(able.batch * decode.workers + prefill.workers * at_once(prefill))


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
    return PoolPair.of(prefill, decode, link, lengths).under(concurrency)


@dataclass(frozen=True, slots=True, eq=False)
class PoolPair:
    """Two pools, or many pairs of them, and what they can do whatever the load.

    Attributes:
        way: of a request through them.
        able: what they can do.
        most: in flight on a decode worker at most, with as many requests a second as the prefill pool can do.
        attention: that of `attention_over` the decode workers' times.
    """

    way: Way
    able: Rates
    most: Array
    attention: Curve | None

    @classmethod
    def of(cls, prefill: Workers, decode: Workers, link: CacheTransfer, lengths: Lengths) -> PoolPair:
        """Work out what pools can do. InfeasibleError where a cache cannot hold one request."""
        attention = attention_over(decode.times, lengths)
        able = rates(prefill, decode, lengths, attention)
        shape = np.broadcast_shapes(able.prefill_per_s.shape, able.decode_per_s.shape)
        level, workers = np.broadcast_to(able.prefill_per_s, shape), _flat(decode.workers, shape)

        def parts(places: NDArray[np.intp]) -> Callable[[Array], Array]:
            some = ManyPools.like(decode, workers[places])
            return lambda b: decode_rate(some, lengths, b, attention)

        most = first_reaching_each(parts, level, np.broadcast_to(able.batch, shape))
        return cls(Way(prefill, decode, link, lengths), able, most, attention)

    def under(self, concurrency: Nums) -> PoolMetrics:
        """Return latencies and rates with so many requests in flight; UsageError with less than one."""
        clients = np.asarray(concurrency, dtype=np.float64)
        if (clients < 1).any():
            raise UsageError(f"concurrency={clients.min():g}; allowed: 1 or more requests in flight")
        shape = np.broadcast_shapes(clients.shape, self.most.shape)
        clients = np.broadcast_to(clients, shape)
        way, able, lengths, attention = self.way, self.able, self.way.lengths, self.attention
        wait = way.wait(clients)
        flat = wait.flat(shape)
        able_flat, workers = _flat(able.prefill_per_s, shape), _flat(way.decode.workers, shape)

        def parts(places: NDArray[np.intp]) -> Callable[[Array], Array]:
            some, ttft, most_per_s = ManyPools.like(way.decode, workers[places]), flat.some(places), able_flat[places]

            def in_flight(batch: Array) -> Array:
                rate = decode_rate(some, lengths, batch, attention)
                return np.asarray(rate * ttft.ttft_s(rate / most_per_s) + some.workers * batch)

            return in_flight

        batch = first_reaching_each(parts, clients, np.broadcast_to(self.most, shape))
        rate = decode_rate(way.decode, lengths, batch, attention)
        first = wait.ttft_s(rate / able.prefill_per_s)
        # Beyond what both pools hold, Little's law leaves a wait.
        waits = clients / rate - lengths.gaps * decode_tpot_s(way.decode, lengths, batch, attention)
        return _metrics(way, able, clients, batch, np.maximum(waits, first), attention)


def _flat(numbers: Nums, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(numbers, dtype=np.float64), shape).ravel()


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
    least, fullest = way.soonest_s, way.fullest_s
    first = least + rate / able.prefill_per_s * (fullest - least)
    in_flight = np.maximum(rate * (first + lengths.gaps * tpot), 1.0)
    return _metrics(way, able, in_flight, batch, first, attention)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptQueue:
    """The queue before prefill workers: the busier they are the fuller are their batches, and the longer is the queue.

    It is that of `n` servers with a service time that is always the same (Sakasegawa 1977), and of no more clients than
    there are.

    Attributes:
        workers: that serve it.
        served: seconds of a full batch.
        least: seconds until the first token of a request alone.
        fuller: seconds of a full batch over those of one prompt.
        others: share of the requests that are not served at once.
        longest: the longest wait.
    """

    workers: Array
    served: Array
    least: Array
    fuller: Array
    others: Array
    longest: Array

    def ttft_s(self, busy: Array) -> Array:
        """Until the first token, over the share of the time for which the prefill workers are busy."""
        full = np.minimum(busy, 1.0 - 1e-9)
        queue = self.served / self.workers * full ** (np.sqrt(2 * (self.workers + 1)) - 1) / (1 - full) / 2
        return np.asarray(self.least + self.others * (full * self.fuller + np.minimum(queue, self.longest)))

    def flat(self, shape: tuple[int, ...]) -> PromptQueue:
        """Return it with all arrays of one shape, as a line."""
        return self._each(lambda a: np.broadcast_to(a, shape).ravel())

    def some(self, places: NDArray[np.intp]) -> PromptQueue:
        """Return some places of a flat one."""
        return self._each(lambda a: a[places])

    def _each(self, made: Callable[[Array], Array]) -> PromptQueue:
        return PromptQueue(**{f.name: made(getattr(self, f.name)) for f in fields(self)})


@dataclass(frozen=True, eq=False)
class Way:
    """The way of a request to its decode worker; what does not depend on the load is worked out once."""

    prefill: Workers
    decode: Workers
    link: CacheTransfer
    lengths: Lengths

    @property
    def kv_bytes(self) -> Array:
        """Of the prompt, on the device that holds most of it at either end."""
        prompt = np.asarray(self.lengths.prompt, dtype=np.float64)
        return np.maximum(self.prefill.times.kv_bytes(prompt), self.decode.times.kv_bytes(prompt))

    @cached_property
    def alone_s(self) -> Array:
        """A prompt by itself."""
        return prefill_pass_s(self.prefill, self.lengths)

    @cached_property
    def full_s(self) -> Array:
        """As many prompts as a worker runs at once."""
        return prefill_pass_s(self.prefill, self.lengths, at_once(self.prefill))

    @cached_property
    def soonest_s(self) -> Array:
        """Until the first token, with one prompt on an idle worker."""
        return self.least_s()

    @cached_property
    def fullest_s(self) -> Array:
        """Likewise with as many prompts as it runs at once."""
        return self.least_s(at_once(self.prefill))

    def least_s(self, num: Nums = 1.0) -> Array:
        """Until the first token, with `num` prompts on an idle worker."""
        one = prefill_pass_s(self.prefill, self.lengths, num)
        return way_in_s(self.prefill.engine.overheads, self.lengths) + one + exposed_s(self.link, self.kv_bytes, one)

    def wait(self, clients: Array) -> PromptQueue:
        """Return the queue before the prefill workers with so many requests in flight."""
        workers, num = np.asarray(self.prefill.workers, dtype=np.float64), at_once(self.prefill)
        return PromptQueue(
            workers=workers,
            served=self.full_s,
            least=self.soonest_s,
            fuller=self.full_s - self.alone_s,
            others=np.maximum(1.0 - workers * num / clients, 0.0),
            longest=clients / (workers * num) * self.full_s,
        )

    def last_s(self, clients: Array) -> Array:
        """Until the first token of the last of all that were sent at one moment."""
        turns = np.ceil(clients / (self.prefill.workers * at_once(self.prefill)))
        return np.asarray(self.fullest_s + (turns - 1) * self.full_s)


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
        ttft_low_s=np.broadcast_to(way.soonest_s, shape),
        ttft_high_s=np.maximum(way.last_s(clients), ttft),
        tpot_s=tpot,
        requests_per_s=rate,
        stall_s=tpot,
    )
    gpus = way.prefill.workers * way.prefill.gpus + decode.workers * decode.gpus
    busy = rate / able.prefill_per_s, rate / able.decode_per_s
    return PoolMetrics(served, *busy, transfer_s(way.link, way.kv_bytes), gpus)
