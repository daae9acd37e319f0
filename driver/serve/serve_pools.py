"""The answer of pools for a load: what both do under it, and where the time of a request goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ...cost.serving.batching.static import batch_prefill_s
from ...cost.serving.batching.steps import decode_step_s, groups_of, host_s, prefill_s, way_in_s
from ...cost.serving.batching.times import Array
from ...cost.serving.capacity import check_prompts, room
from ...cost.serving.disaggregated import (
    PoolMetrics,
    PoolPair,
    exposed_s,
    most_disaggregated,
    most_in_flight,
)
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.pool_tails import with_pool_tails
from ...cost.serving.slo import ANYTHING, SLO, most_concurrency
from ...cost.serving.traffic.requests import Lengths
from ...ir.errors import InfeasibleError, UsageError
from ..estimate import Estimate
from .answer import ReplicaFleet, ServeEstimate, memory_of, metrics_of, warnings_of, with_goodput
from .load import Load
from .notes import room_notes
from .parts import HOST, QUEUE, WAY_IN, spread_over
from .pools import Pools, most_of

TRANSFER = "transfer"
Under = Callable[[Array], PoolMetrics]
# Rounds in which so many numbers of requests in flight are looked at, and the most of them.
_ROUNDS, _TRIED, _MOST = 2, 256, 1e9


def serve_pools(pools: Pools, lengths: Lengths, load: Load, target: SLO = ANYTHING) -> ServeEstimate:
    """Answer for requests under a load; without one, as many as both pools can do within a target.

    InfeasibleError as `serve`, and where a prefill worker does not hold its prompts.
    """
    if load.batch is not None:
        raise UsageError("a static batch runs on one pool: give --concurrency or --request-rate with --disagg")
    prefill, decode = pools.workers
    check_prompts(prefill.times, prefill.engine.scheduler, lengths, prefill.batch or 1)
    pair, most = PoolPair.of(prefill, decode, pools.link, lengths), most_of(pools, lengths)

    def under(concurrency: Array) -> PoolMetrics:
        return with_pool_tails(pair.under(concurrency), pair, target)

    held = float(most_in_flight(prefill, decode, pair.able))
    if load.concurrency is not None:
        found = under(np.asarray(load.concurrency))
    elif load.requests_per_s is not None:
        found = _at_rate(under, load.requests_per_s, most, held)
    elif target:
        concurrency = most_concurrency(lambda num: under(np.asarray(num)).served, target, int(held))
        found = under(concurrency.concurrency)
    else:
        found = most_disaggregated(prefill, decode, pools.link, lengths)
    return with_goodput(answer_of_pools(replace(pools, found=found), found, lengths, load, most), target)


def _at_rate(under: Under, requests_per_s: float, most: float, held: float) -> PoolMetrics:
    """The least concurrency at which so many requests are answered; many are looked at at once."""
    if requests_per_s > most:
        raise InfeasibleError(
            f"{requests_per_s:.4g} requests/s come and the pools answer {most:.4g} at most: use more workers"
        )
    low, high = 1.0, max(held, 2.0)
    while high < _MOST and float(under(np.asarray(high)).served.requests_per_s) < requests_per_s:
        high *= 4.0
    for _ in range(_ROUNDS):
        tried = np.geomspace(low, high, _TRIED)
        enough = under(tried).served.requests_per_s >= requests_per_s
        first = int(np.argmax(enough)) if enough.any() else _TRIED - 1
        low, high = float(tried[max(first - 1, 0)]), float(tried[first])
    found = under(np.asarray(high))
    served = replace(found.served, requests_per_s=np.minimum(found.served.requests_per_s, requests_per_s))
    return replace(found, served=served)


def answer_of_pools(pools: Pools, found: PoolMetrics, lengths: Lengths, load: Load, most: float) -> ServeEstimate:
    """Return the whole answer; batch and memory are of decode workers."""
    served, decode = replace(found.served, tokens_per_gap=pools.decode.tokens_per_gap), pools.decode
    prompt, output = float(np.asarray(lengths.prompt)), float(np.asarray(lengths.output))
    first = pools.prefill.phase(pools.prefill.served.prefill, 1.0, float(lengths.fresh))
    groups = float(groups_of(decode.times, served.batch))
    step = decode.phase(decode.served.decode, float(served.decodes) / groups, 1.0, prompt + output / 2)
    held = float(room(decode.times, decode.engine.scheduler, lengths))
    fleet = ReplicaFleet(pools.num_gpus, 1.0, most, held)
    notes = () if load.traffic else room_notes(decode, lengths, served)
    more = {
        "prefill_busy": float(found.prefill_busy),
        "decode_busy": float(found.decode_busy),
        "transfer_s": float(found.transfer_s),
    }
    return ServeEstimate(
        decode,
        lengths,
        load,
        served,
        first,
        step,
        {**dict(metrics_of(decode, fleet, lengths, served, step)), **more},
        _parts(pools, lengths, served, first, step),
        memory_of(decode, lengths, served, step),
        (*warnings_of(decode, first, step), *notes),
        pools=pools,
    )


def _parts(
    pools: Pools, lengths: Lengths, found: ServingMetrics, prefill: Estimate, decode: Estimate
) -> Mapping[str, float]:
    """Seconds of a request by part; they add up to `e2el_s`."""
    one, then = pools.prefill, pools.decode
    way_in = float(way_in_s(one.engine.overheads, lengths))
    alone = float(batch_prefill_s(one.times, one.engine, 1.0, lengths))
    host = float(np.ceil(float(lengths.fresh) / one.engine.scheduler.max_batched_tokens)) * one.engine.overheads.step_s
    prompt = np.asarray(lengths.prompt, dtype=np.float64)
    held = np.maximum(one.times.kv_bytes(prompt), then.times.kv_bytes(prompt))
    sent = float(exposed_s(pools.link, held, prefill_s(one.times, one.engine, lengths)))
    gaps, over = float(lengths.gaps), then.engine.overheads
    batch = np.maximum(found.batch, 1.0)
    step = float(decode_step_s(then.times, over, batch, lengths))
    step = min(step, float(found.tpot_s)) - float(host_s(over, batch / groups_of(then.times, batch)))
    waits = float(found.ttft_s) - way_in - alone - sent
    parts = {WAY_IN: way_in, QUEUE: max(waits, 0.0), **spread_over("prefill", alone - host, prefill), TRANSFER: sent}
    parts |= spread_over("decode", gaps * step, decode)
    parts[HOST] = float(found.e2el_s) - sum(parts.values())
    return {name: seconds for name, seconds in parts.items() if seconds > 0.0}
