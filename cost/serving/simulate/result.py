"""What a run of requests came to: latencies of each, their spread, rates, how full the engine was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ..batching.times import Array
from ..traffic.traffic import Index
from .autoscale import ScaledReplicas
from .book import SimulatedSteps
from .failures import FailedReplicas

# A latency over many requests as mean, median, deviation and percentiles.
_SHARES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a time is spread, in seconds; nothing is a number where there is none of it."""

    mean: float
    std: float
    median: float
    p90: float
    p95: float
    p99: float
    longest: float

    def as_bench(self, name: str) -> Mapping[str, float | None]:
        """Return it in milliseconds under the names of serving benchmarks; None where there is none."""
        of = {
            "mean": self.mean,
            "median": self.median,
            "std": self.std,
            "p90": self.p90,
            "p95": self.p95,
            "p99": self.p99,
        }
        return {f"{part}_{name}_ms": None if np.isnan(s) else s * 1e3 for part, s in of.items()}


def spread(values_s: Array) -> Spread:
    """Return the spread of times that count alike; percentiles lie on lines between neighbours, as numpy's do.

    >>> spread(np.array([1.0, 2.0, 3.0, 4.0])).median
    2.5
    """
    if not len(values_s):
        return _of(np.full(7, np.nan))
    found = np.quantile(values_s, _SHARES)
    return _of(np.concatenate([[values_s.mean(), values_s.std()], found, [values_s.max()]]))


def weighted_spread(values_s: Array, num: Array) -> Spread:
    """Return the spread of times of which there are several each; a percentile is the least that so many do not pass.

    >>> weighted_spread(np.array([1.0, 5.0]), np.array([98.0, 2.0])).p99
    5.0
    """
    total = float(num.sum())
    if not total:
        return _of(np.full(7, np.nan))
    mean = float(values_s @ num) / total
    std = np.sqrt(float(((values_s - mean) ** 2) @ num) / total)
    order = np.argsort(values_s)
    below = np.cumsum(num[order])
    at = np.minimum(np.searchsorted(below, np.array(_SHARES) * total), len(order) - 1)
    return _of(np.concatenate([[mean, std], values_s[order[at]], [values_s.max()]]))


def _of(values: Array) -> Spread:
    return Spread(*(float(v) for v in values))


@dataclass(frozen=True, slots=True, eq=False)
class ServedRequests:
    """Moments and tokens of each request, all on one clock.

    Attributes:
        arrived_s: sent by the client.
        start_s: taken into a step for the first time.
        first_s: first token.
        finish_s: last token.
        prompt: tokens of the prompt.
        output: tokens of the answer.
        cached: tokens of the prompt that were there.
        preemptions: how often it was put back and computed anew.
    """

    arrived_s: Array
    start_s: Array
    first_s: Array
    finish_s: Array
    prompt: Index
    output: Index
    cached: Index
    preemptions: Index

    def chosen(self, which: NDArray[np.bool_]) -> ServedRequests:
        """Return some of them alone."""
        return ServedRequests(
            self.arrived_s[which],
            self.start_s[which],
            self.first_s[which],
            self.finish_s[which],
            self.prompt[which],
            self.output[which],
            self.cached[which],
            self.preemptions[which],
        )


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full one replica of a pool was.

    Attributes:
        batch_mean: sequences that run, over the whole run.
        batch_peak: the most of them.
        kv_mean: share of the KV cache that is held, over the whole run.
        kv_peak: the most of it.
        busy: share of the time in which a step runs.
    """

    batch_mean: float
    batch_peak: float
    kv_mean: float
    kv_peak: float
    busy: float


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests that meet limits: how many a second, and which share of all."""

    requests_per_s: float
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedServing:
    """A run.

    Attributes:
        served: the requests.
        gap_s: lengths of gaps between tokens of one sequence.
        gap_at_s: when they ended.
        gaps: how many there were of each.
        fullness: of each pool.
        steps: the first steps one by one, if they were asked for.
        num_steps: steps in all.
        clients: of a closed loop, else 0.
        window_s: the time to which requests and rates belong, where not the whole run.
        failed: what failures of replicas came to in the whole run, where they fail.
        scaled: what autoscaling came to in the whole run, of each pool that has it.
    """

    served: ServedRequests
    gap_s: Array
    gap_at_s: Array
    gaps: Array
    fullness: tuple[Fullness, ...]
    steps: tuple[SimulatedSteps, ...] = ()
    num_steps: int = 0
    clients: int = 0
    window_s: float = 0.0
    failed: FailedReplicas | None = None
    scaled: tuple[ScaledReplicas, ...] = ()

    @property
    def ttft_s(self) -> Array:
        """From sending each request to its first token."""
        return self.served.first_s - self.served.arrived_s

    @property
    def e2el_s(self) -> Array:
        """From sending each request to its last token."""
        return self.served.finish_s - self.served.arrived_s

    @property
    def tpot_s(self) -> Array:
        """Mean time of each request's tokens behind the first; not a number where there are none."""
        behind = self.served.output - 1
        decode_s = self.served.finish_s - self.served.first_s
        return np.where(behind > 0, decode_s / np.maximum(behind, 1), np.nan)

    @property
    def queue_s(self) -> Array:
        """From sending each request to the first step that works for it; the request overhead is part of it."""
        return self.served.start_s - self.served.arrived_s

    @property
    def ttft(self) -> Spread:
        """Spread of TTFT over requests."""
        return spread(self.ttft_s)

    @property
    def tpot(self) -> Spread:
        """Spread of TPOT over requests with two tokens or more."""
        return spread(self.tpot_s[self.served.output > 1])

    @property
    def itl(self) -> Spread:
        """Spread of the gaps between tokens, over all of them."""
        return weighted_spread(self.gap_s, self.gaps)

    @property
    def e2el(self) -> Spread:
        """Spread of end-to-end latency over requests."""
        return spread(self.e2el_s)

    @property
    def queue(self) -> Spread:
        """Spread of the time before the first step, over requests."""
        return spread(self.queue_s)

    @property
    def duration_s(self) -> float:
        """From the first request that is sent to the last answer."""
        return self.window_s or float(self.served.finish_s.max() - self.served.arrived_s.min())

    @property
    def requests_per_s(self) -> float:
        """Requests that are answered."""
        return len(self.served.output) / self.duration_s

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens that are generated."""
        return float(self.served.output.sum()) / self.duration_s

    @property
    def total_tokens_per_s(self) -> float:
        """Tokens of prompts and answers; cached ones count."""
        return float((self.served.prompt + self.served.output).sum()) / self.duration_s

    @property
    def preemptions(self) -> int:
        """How often a request was put back."""
        return int(self.served.preemptions.sum())

    def goodput(self, ttft_s: float = np.inf, tpot_s: float = np.inf, e2el_s: float = np.inf) -> Goodput:
        """Return the requests that meet all limits; one of a single token has no TPOT to miss."""
        slow = (self.ttft_s > ttft_s) | (np.nan_to_num(self.tpot_s) > tpot_s) | (self.e2el_s > e2el_s)
        good = int((~slow).sum())
        return Goodput(good / self.duration_s, good / len(slow))

    def middle(self, cut: float = 0.1) -> SimulatedServing:
        """Return what lies between the start and the end of the run: a share of the answers is cut off at both.

        Requests are taken by when they are answered, and rates are over the time from the answer before the first of
        them to the last: what a server does in the steady state, without filling up and running dry. In a closed loop
        whole rounds of its clients are cut off and kept, as clients may go in step. How full the engine was stays that
        of the whole run. UsageError where nothing is left.
        """
        served, num = self.served, len(self.served.output)
        each = max(self.clients, 1)
        first = round(num * cut / each) * each
        last = first + (num - 2 * first) // each * each
        order = np.argsort(served.finish_s, kind="stable")
        kept = order[first:last]
        low = float(served.finish_s[order[first - 1]] if 0 < first < num else served.arrived_s.min())
        high = float(served.finish_s[kept[-1]]) if len(kept) else low
        if not (0 <= cut < 0.5 and high > low):
            raise UsageError(f"of {num} requests none are left without a share of {cut:g} at both ends")
        which = np.zeros(num, dtype=np.bool_)
        which[kept] = True
        gaps = (self.gap_at_s > low) & (self.gap_at_s <= high)
        return replace(
            self,
            served=served.chosen(which),
            gap_s=self.gap_s[gaps],
            gap_at_s=self.gap_at_s[gaps],
            gaps=self.gaps[gaps],
            window_s=high - low,
        )

    def to_bench_json(self, detailed: bool = False, goodput: Goodput | None = None) -> Mapping[str, object]:
        """Return the run as `vllm bench serve --save-result` writes one: times in ms, rates a second.

        `detailed` adds lengths and TTFT of each request. Source: `vllm/benchmarks/serve.py`.
        """
        served = self.served
        found: dict[str, object] = {
            "num_prompts": len(served.output),
            "max_concurrency": self.clients or None,
            "duration": self.duration_s,
            "completed": len(served.output),
            "failed": 0,
            "total_input_tokens": int(served.prompt.sum()),
            "total_output_tokens": int(served.output.sum()),
            "request_throughput": self.requests_per_s,
            "request_goodput": None if goodput is None else goodput.requests_per_s,
            "output_throughput": self.output_tokens_per_s,
            "total_token_throughput": self.total_tokens_per_s,
        }
        for name, one in (("ttft", self.ttft), ("tpot", self.tpot), ("itl", self.itl), ("e2el", self.e2el)):
            found |= one.as_bench(name)
        if detailed:
            found |= {
                "input_lens": served.prompt.tolist(),
                "output_lens": served.output.tolist(),
                "ttfts": self.ttft_s.tolist(),
            }
        return found
