"""Continuous batching under requests that come at a rate, whoever waits: its steady state and its waits.

Arrivals at random see the mean of what is in flight (Poisson arrivals see time averages), so a request runs beside
`L = rate x time in flight` others, which gives L. Two queues are before it:

    room for its cache:  W = s / B  rho^(sqrt(2 (B + 1)) - 1) / (1 - rho) / 2     rho = rate / greatest rate
    other prefills:      W = s / 2  rho / (1 - rho)                               rho = rate x prefill

of B servers and of one with service time s that is always the same; and half a step, as one is in flight. Where
prompts run in steps of their own, all that come during a step r run in the next: W = r/2 + rate r b, b a prompt more.

Sources: J. D. C. Little, Operations Research 9(3), 1961; R. W. Wolff, Operations Research 30(2), 1982; H. Sakasegawa,
Annals of the Institute of Statistical Mathematics 29, 1977 (the many servers).
"""

from __future__ import annotations

import numpy as np

from ....backends.machine.software.engine import Engine
from ....ir.errors import InfeasibleError, UsageError
from ..capacity import max_batch
from ..metrics import ServingMetrics
from ..search import first_reaching
from ..traffic.requests import Lengths
from .continuous import Life, Prompts, life, most_throughput
from .steps import budget, prompt_steps, way_in_s
from .times import Array, Nums, StepTimes


def at_rate(times: StepTimes, engine: Engine, rate_per_s: Nums, lengths: Lengths) -> ServingMetrics:
    """Return latencies where requests come at random, `rate_per_s` of them a second.

    TTFT is a mean; its low is a prompt by itself, its high the same behind all that are in flight on average.
    Requests that nobody times do not keep step: decodes wait for all of the prompts beside them (`Engine.at_random`).
    InfeasibleError where more come than the greatest rate at which they can be answered: then the queue has no end.
    """
    engine = engine.at_random
    rate = np.asarray(rate_per_s, dtype=np.float64)
    if not (rate > 0).all():
        raise UsageError(f"rate={rate.min():g} requests/s; allowed: above 0")
    best = most_throughput(times, engine, lengths)
    full = rate / best.requests_per_s
    if (full >= 1).any():
        raise InfeasibleError(_too_many(rate, best.requests_per_s, full))
    room = max_batch(times, engine.scheduler, lengths)
    prompts = Prompts.of(times, engine, lengths)
    others = first_reaching(
        lambda n: n / life(times, engine, np.minimum(1.0 + n, room), lengths, prompts).total_s,
        rate,
        np.zeros_like(room),
        room,
    )
    batch = np.minimum(1.0 + others, room)
    return _metrics(times, engine, rate, full, batch, lengths)


def _metrics(
    times: StepTimes, engine: Engine, rate: Array, full: Array, batch: Array, lengths: Lengths
) -> ServingMetrics:
    found = life(times, engine, batch, lengths)
    room = max_batch(times, engine.scheduler, lengths)
    way_in = way_in_s(engine.overheads, lengths)
    for_room = found.total_s / room * np.power(full, np.sqrt(2 * (room + 1)) - 1) / (1 - full) / 2
    for_step = -np.expm1(1.0 - batch) * found.tpot_s / 2
    if engine.scheduler.mixed:
        # What a prompt waits for others when a step's budget is spent on them.
        served = np.minimum(lengths.fresh / budget(engine.scheduler, lengths), 1.0) * found.alone_s
        busy = np.minimum(rate * served / times.groups, 0.99)
        waits = for_room + for_step + np.asarray(served / 2 * busy / (1 - busy))
        first = found.first_s
    else:
        waits = for_room - np.expm1(1.0 - batch) * _turn_s(times, engine, rate, found, lengths)
        first = found.alone_s
    ttft = way_in + waits + first
    in_flight = rate * (ttft + lengths.gaps * found.tpot_s)
    shape = in_flight.shape
    return ServingMetrics(
        concurrency=in_flight,
        batch=np.broadcast_to(rate * found.total_s, shape),
        decodes=np.broadcast_to(found.decodes, shape),
        prompt=np.broadcast_to(np.asarray(lengths.prompt, dtype=np.float64), shape),
        output=np.broadcast_to(np.asarray(lengths.output, dtype=np.float64), shape),
        ttft_s=ttft,
        ttft_low_s=np.broadcast_to(way_in + found.alone_s, shape),
        ttft_high_s=np.maximum(way_in + waits + found.burst_s, ttft),
        tpot_s=np.where(lengths.gaps > 0, found.tpot_s, np.nan),
        requests_per_s=np.broadcast_to(rate, shape),
        stall_s=found.stall_s,
    )


def _turn_s(times: StepTimes, engine: Engine, rate: Array, found: Life, lengths: Lengths) -> Array:
    """What a prompt waits where prompts run in steps of their own: half of the step that runs, and who came in it.

    All that come during a step run together in the next, so that each of them has the prompts of the others in its own.
    """
    alone, more, spent, each = prompt_steps(times, engine, lengths, rate, found.step_s)
    share = spent / (found.step_s + spent)
    running = share * (alone + more * (each - 1.0)) + (1.0 - share) * found.step_s
    return np.asarray((0.5 + more * rate) * running)


def _too_many(rate: Array, most: Array, full: Array) -> str:
    worst = int(np.argmax(np.ravel(full)))
    asked, best = (np.ravel(np.broadcast_to(values, full.shape))[worst] for values in (rate, most))
    return (
        f"{asked:.4g} requests/s come and no more than {best:.4g} can be answered on one replica: their queue would "
        f"grow without end; {int(asked / best) + 1} replicas would do"
    )
