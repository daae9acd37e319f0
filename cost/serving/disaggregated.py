"""Prompts on some devices and answers on others: two pools, and the caches that go from one to the other.

A prefill worker takes prompts, `batch` at a time; its caches then go over a link to a decode worker, which runs nothing
but decodes. Requests a second are those of the slower pool,

    min(n_p b_p / t_prefill(b_p),  n_d b / ((output - 1) TPOT(b)))

and Little's law ties them to clients: requests in flight = rate x (TTFT + (output - 1) TPOT). TTFT is counted until the
decode worker has the cache. Sources: DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UsageError
from ...ir.records import dataclass
from .batching.static import batch_prefill_s
from .batching.steps import groups_of, way_in_s
from .batching.times import Array, Curve, Nums
from .capacity import max_batch
from .metrics import ServingMetrics
from .search import first_reaching, first_reaching_each
from .token_times import ManyKinds, OneKind, TokenTimes
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
        _rate(np.asarray(decode.workers, dtype=np.float64), OneKind(decode, lengths, attention), lengths, room),
        room,
    )


def most_in_flight(prefill: Workers, decode: Workers, able: Rates) -> Array:
    """Return the requests that both pools hold at most: sequences of all decode workers, and prompts that run."""
    return np.asarray(able.batch * decode.workers + prefill.workers * at_once(prefill))


def decode_tpot_s(decode: Workers, lengths: Lengths, batch: Nums) -> Array:
    """Return the time of a token on a decode worker with `batch` in flight."""
    return OneKind.of(decode, lengths).tpot_s(batch)


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


def most_disaggregated(prefill: Workers, decode: Workers, link: CacheTransfer, lengths: Lengths) -> PoolMetrics:
    """Return what the pools do at the most requests a second of both: enough are always waiting.

    TTFT is that of a request that finds room at once, in prefill batches as full as the rate makes them.
    """
    pair = PoolPair.of(prefill, decode, link, lengths)
    able, prompts = pair.able, pair.prompts
    rate = np.minimum(able.prefill_per_s, able.decode_per_s)
    batch = first_reaching(pair.decode_rate, rate, np.zeros_like(rate), able.batch + 0.0 * rate)
    first = prompts.soonest_s + rate / able.prefill_per_s * (prompts.fullest_s - prompts.soonest_s)
    in_flight = np.maximum(rate * (first + lengths.gaps * pair.tokens.tpot_s(batch)), 1.0)
    return pair.metrics(in_flight, batch, first)


@dataclass(frozen=True, eq=False)
class PoolPair:
    """Two pools, or many pairs of them, and what they can do whatever the load.

    Attributes:
        prompts: how the prefill pool takes prompts.
        tokens: what a token takes on the decode pool.
        workers: of the decode pool.
        able: what they can do.
        transfer_s: of one cache.
        gpus: devices of both pools.
        lengths: of requests.
    """

    prompts: PromptPool
    tokens: TokenTimes
    workers: Array
    able: Rates
    transfer_s: Array
    gpus: Nums
    lengths: Lengths

    @classmethod
    def of(cls, prefill: Workers, decode: Workers, link: CacheTransfer, lengths: Lengths) -> PoolPair:
        """Work out what pools can do. InfeasibleError where a cache cannot hold one request."""
        tokens, way = OneKind.of(decode, lengths), Way(prefill, decode, link, lengths)
        workers = np.asarray(decode.workers, dtype=np.float64)
        able = rates(prefill, decode, lengths, tokens.attention)
        gpus = prefill.workers * prefill.gpus + decode.workers * decode.gpus
        return cls(PromptPool.of(way), tokens, workers, able, transfer_s(link, way.kv_bytes), gpus, lengths)

    @classmethod
    def joined(cls, pairs: Sequence[PoolPair], rows: Sequence[NDArray[np.intp]]) -> PoolPair:
        """Put some rows of tables of pairs below each other; each has one column, and all have the same lengths."""
        shapes = [pair.workers.shape for pair in pairs]

        def below(columns: Iterable[Nums]) -> Array:
            each = zip(columns, shapes, rows, strict=True)
            return np.concatenate([np.broadcast_to(column, shape)[some] for column, shape, some in each])

        return cls(
            PromptPool(**{f.name: below(getattr(pair.prompts, f.name) for pair in pairs) for f in fields(PromptPool)}),
            ManyKinds.of([pair.tokens for pair in pairs], [len(some) for some in rows]),
            below(pair.workers for pair in pairs),
            Rates(**{f.name: below(getattr(pair.able, f.name) for pair in pairs) for f in fields(Rates)}),
            below(pair.transfer_s for pair in pairs),
            below(pair.gpus for pair in pairs),
            pairs[0].lengths,
        )

    def decode_rate(self, batch: Array) -> Array:
        """Return requests a second of the decode pool with `batch` in flight on each worker."""
        return _rate(self.workers, self.tokens, self.lengths, batch)

    @cached_property
    def most(self) -> Array:
        """In flight on a decode worker at most, with as many requests a second as the prefill pool can do."""
        shape = np.broadcast_shapes(self.able.prefill_per_s.shape, self.able.decode_per_s.shape)
        tokens, workers = self.tokens.flat(shape), _flat(self.workers, shape)

        def parts(places: NDArray[np.intp]) -> Callable[[Array], Array]:
            times, num = tokens.some(places), workers[places]
            return lambda batch: _rate(num, times, self.lengths, batch)

        level, room = (np.broadcast_to(column, shape) for column in (self.able.prefill_per_s, self.able.batch))
        return first_reaching_each(parts, level, room)

    def under(self, concurrency: Nums) -> PoolMetrics:
        """Return latencies and rates with so many requests in flight; UsageError with less than one."""
        clients = np.asarray(concurrency, dtype=np.float64)
        if (clients < 1).any():
            raise UsageError(f"concurrency={clients.min():g}; allowed: 1 or more requests in flight")
        shape = np.broadcast_shapes(clients.shape, self.most.shape)
        clients = np.broadcast_to(clients, shape)
        wait, tokens = self.prompts.wait(clients), self.tokens.flat(shape)
        flat, workers, most_per_s = wait.flat(shape), _flat(self.workers, shape), _flat(self.able.prefill_per_s, shape)

        def parts(places: NDArray[np.intp]) -> Callable[[Array], Array]:
            times, ttft, num, most = tokens.some(places), flat.some(places), workers[places], most_per_s[places]

            def in_flight(batch: Array) -> Array:
                rate = _rate(num, times, self.lengths, batch)
                return np.asarray(rate * ttft.ttft_s(rate / most) + num * batch)

            return in_flight

        batch = first_reaching_each(parts, clients, np.broadcast_to(self.most, shape))
        rate = self.decode_rate(batch)
        first = wait.ttft_s(rate / self.able.prefill_per_s)
        # Beyond what both pools hold, Little's law leaves a wait.
        waits = clients / rate - self.lengths.gaps * self.tokens.tpot_s(batch)
        return self.metrics(clients, batch, np.maximum(waits, first))

    def metrics(self, clients: Array, batch: Array, ttft: Array) -> PoolMetrics:
        """Return what is seen with so many requests in flight, on each decode worker, and such a wait."""
        rate, tpot, lengths = self.decode_rate(batch), self.tokens.tpot_s(batch), self.lengths
        shape = ttft.shape
        served = ServingMetrics(
            concurrency=clients,
            batch=batch,
            decodes=np.maximum(batch, 1.0),
            prompt=np.broadcast_to(np.asarray(lengths.prompt, dtype=np.float64), shape),
            output=np.broadcast_to(np.asarray(lengths.output, dtype=np.float64), shape),
            ttft_s=ttft,
            ttft_low_s=np.broadcast_to(self.prompts.soonest_s, shape),
            ttft_high_s=np.maximum(self.prompts.last_s(clients), ttft),
            tpot_s=tpot,
            requests_per_s=rate,
            stall_s=tpot,
        )
        busy = rate / self.able.prefill_per_s, rate / self.able.decode_per_s
        return PoolMetrics(served, *busy, self.transfer_s, self.gpus)


def _rate(workers: Array, tokens: TokenTimes, lengths: Lengths, batch: Array) -> Array:
    """Requests a second of decode pools with `batch` in flight on each worker."""
    return np.asarray(workers * batch / (lengths.gaps * tokens.tpot_s(batch)))


def _flat(numbers: Nums, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(numbers, dtype=np.float64), shape).ravel()


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
        crowded = np.power(full, np.sqrt(2 * (self.workers + 1)) - 1)
        queue = self.served / self.workers * crowded / (1 - full) / 2
        return np.asarray(self.least + self.others * (full * self.fuller + np.minimum(queue, self.longest)))

    def flat(self, shape: tuple[int, ...]) -> PromptQueue:
        """Return it with all arrays of one shape, as a line."""
        return self._each(lambda a: np.broadcast_to(a, shape).ravel())

    def some(self, places: NDArray[np.intp]) -> PromptQueue:
        """Return some places of a flat one."""
        return self._each(lambda a: a[places])

    def _each(self, made: Callable[[Array], Array]) -> PromptQueue:
        return PromptQueue(**{f.name: made(getattr(self, f.name)) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptPool:
    """How a prefill pool takes prompts, whatever the load.

    Attributes:
        workers: that there are.
        at_once: prompts that each runs at once at most.
        alone_s: a prompt by itself.
        full_s: as many as a worker runs at once.
        soonest_s: until the first token, with one prompt on an idle worker.
        fullest_s: likewise with as many as it runs at once.
    """

    workers: Array
    at_once: Array
    alone_s: Array
    full_s: Array
    soonest_s: Array
    fullest_s: Array

    @classmethod
    def of(cls, way: Way) -> PromptPool:
        """Work out what a way to decode workers takes."""
        prefill, num = way.prefill, at_once(way.prefill)
        alone_s, full_s = (prefill_pass_s(prefill, way.lengths, prompts) for prompts in (1.0, num))
        return cls(
            workers=np.asarray(prefill.workers, dtype=np.float64),
            at_once=num,
            alone_s=alone_s,
            full_s=full_s,
            soonest_s=way.least_s(),
            fullest_s=way.least_s(num),
        )

    def wait(self, clients: Array) -> PromptQueue:
        """Return the queue before the prefill workers with so many requests in flight."""
        return PromptQueue(
            workers=self.workers,
            served=self.full_s,
            least=self.soonest_s,
            fuller=self.full_s - self.alone_s,
            others=np.maximum(1.0 - self.workers * self.at_once / clients, 0.0),
            longest=clients / (self.workers * self.at_once) * self.full_s,
        )

    def last_s(self, clients: Array) -> Array:
        """Until the first token of the last of all that were sent at one moment."""
        turns = np.ceil(clients / (self.workers * self.at_once))
        return np.asarray(self.fullest_s + (turns - 1) * self.full_s)


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
        """Until the first token, with `num` prompts on an idle worker."""
        one = prefill_pass_s(self.prefill, self.lengths, num)
        return way_in_s(self.prefill.engine.overheads, self.lengths) + one + exposed_s(self.link, self.kv_bytes, one)
