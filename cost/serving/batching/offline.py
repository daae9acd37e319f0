"""A job of many requests that are all there from the start: how long until the last one is answered.

Requests of equal lengths that start together end together, so that they run in waves of the batch that the cache
holds: `N = k B + r` requests take `k life(B) + life(r)`, where the last wave may be a small one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....backends.machine.software.engine import Engine
from ..metrics import ServingMetrics
from ..traffic.requests import Lengths
from .continuous import life, most_throughput
from .times import Nums, StepTimes


def offline(times: StepTimes, engine: Engine, requests: Nums, lengths: Lengths) -> ServingMetrics:
    """Return the rate of `requests` that were all sent at once, in the best batch that the cache holds.

    Never more than the steady state without an end: see `most_throughput`. Latencies are those of its full waves.
    InfeasibleError where no request fits.
    """
    steady = most_throughput(times, engine, lengths)
    num = np.asarray(requests, dtype=np.float64)
    batch = np.minimum(steady.batch, num)
    waves = np.floor(num / batch)
    rest = num - waves * batch
    last = np.where(rest > 0, life(times, engine, np.maximum(rest, 1.0), lengths).total_s, 0.0)
    whole = waves * life(times, engine, batch, lengths).total_s + last
    rate = np.minimum(num / whole, steady.requests_per_s)
    return replace(steady, concurrency=num, batch=batch, requests_per_s=rate)
