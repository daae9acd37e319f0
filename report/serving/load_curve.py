"""Latencies of a server from next to no load up to almost all that it can answer, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...cost.serving.batching.continuous import most_throughput
from ...cost.serving.batching.open_loop import at_rate
from ...cost.serving.batching.tails import Flights
from ...cost.serving.batching.times import Array, Nums
from ...cost.serving.disaggregated import PoolPair, most_in_flight
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.pool_tails import with_pool_tails
from ...cost.serving.slo import SLO
from ...driver.serve.answer import ServeEstimate

# Shares of the greatest rate: closer where latencies bend.
_SHARES = np.array((0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.97))
# Percentiles of requests that come at random.
PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def latency_columns(latency: str) -> Mapping[str, str]:
    """Return the columns of a latency by what they are of the requests.

    >>> latency_columns("TTFT")["p99"]
    'ttft_p99_s'
    """
    return {"mean": f"{latency.lower()}_s", **{name: f"{latency.lower()}_{name}_s" for name in PERCENTILES}}


def load_curve(answer: ServeEstimate) -> Mapping[str, Array]:
    """Return rates of requests that come at random, of all replicas, and latencies, concurrency and tokens/s/GPU there.

    TTFT and TPOT are means (`ttft_s`, `tpot_s`) and percentiles (`ttft_p99_s`); what an answer of one token has none
    of is not a number, and what a full pool has no end of infinite. Nothing for simulated traffic, which has no closed
    form of its load, and for static batches, which no request at random waits for.
    """
    server, lengths, pools = answer.server, answer.lengths, answer.pools
    if answer.simulated is not None or server.runs_together(answer.load):
        return {}
    if pools is not None:
        prefill, decode = pools.workers
        pair = PoolPair.of(prefill, decode, pools.link, lengths)
        found = pair.under(np.geomspace(1.0, float(most_in_flight(prefill, decode, pair.able)), len(_SHARES)))
        slos = (SLO(1.0, 1.0, share, share) for share in PERCENTILES.values())
        spread = (with_pool_tails(found, pair, slo).served for slo in slos)
        return _columns(found.served, 1, answer.num_gpus, [(one.ttft_tail_s, one.tpot_tail_s) for one in spread])
    engine = server.engine
    each = _SHARES * float(np.min(most_throughput(server.times, engine.at_random, lengths).requests_per_s))
    tails = Flights.of(server.times, engine, lengths).tails(each)
    means = at_rate(server.times, engine, each, lengths)
    return _columns(means, server.num_replicas, answer.num_gpus, [tails.at(share) for share in PERCENTILES.values()])


def _columns(
    means: ServingMetrics, replicas: int, num_gpus: int, spread: Sequence[tuple[Nums, Nums]]
) -> Mapping[str, Array]:
    curve = {
        "requests_per_s": means.requests_per_s * replicas,
        "concurrency": means.concurrency * replicas,
        "tokens_per_s_per_gpu": means.output_tokens_per_s * replicas / num_gpus,
        "ttft_s": means.ttft_s,
        "tpot_s": means.tpot_s,
    }
    for name, (ttft_s, tpot_s) in zip(PERCENTILES, spread, strict=True):
        curve |= {f"ttft_{name}_s": np.asarray(ttft_s), f"tpot_{name}_s": np.asarray(tpot_s)}
    return curve
