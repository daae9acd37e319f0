"""Requests one by one on a server: the mean request in the form that closed forms have, with how latencies spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ....cost.serving.disaggregated import PoolMetrics, rates
from ....cost.serving.metrics import ServingMetrics
from ....cost.serving.simulate.result import Fullness, SimulatedServing
from ....cost.serving.simulate.run import Pool, Transfer, simulate, simulate_apart
from ....cost.serving.slo import SLO
from ....cost.serving.traffic.requests import Lengths
from ....cost.serving.traffic.traffic import Traffic
from ..answer import ServeEstimate, answer_of
from ..load import Load
from ..notes import failure_note, overload_notes
from ..pools import Pools, most_of
from ..serve import phases_of
from ..serve_pools import answer_of_pools
from ..server import Server
from .autoscaled import beside_fixed

PERCENTILES = ("p50", "p90", "p99")


def serve_traffic(
    server: Server, traffic: Traffic, load: Load, target: SLO, most_steps: int = 0, cut: float = 0.0
) -> ServeEstimate:
    """Serve requests one by one on all replicas; `cut` of the answers is left out at both ends of the run.

    InfeasibleError where a request does not fit; UsageError for fewer clients than replicas.
    """
    if traffic.clients and server.autoscaling is None:
        Load(concurrency=float(traffic.clients)).of_replica(server.num_replicas)
    run = simulate(traffic, _pool(server), most_steps)
    kept = run.middle(cut) if cut else run
    replicas = run.scaled[0].mean if run.scaled else float(server.num_replicas)
    lengths, found = mean_lengths(kept), _as_metrics(kept, server, replicas, kept.fullness[0])
    prefill, decode = phases_of(server, lengths, found, False)
    answer = answer_of(server, lengths, load, found, prefill, decode)
    answer = _finished(answer, kept, traffic, target, _cautions(traffic, server))
    if server.autoscaling is None:
        return answer
    fixed = simulate(traffic, replace(_pool(server), autoscaling=None))
    return beside_fixed(answer, fixed.middle(cut) if cut else fixed, fixed.duration_s, target)


def serve_traffic_apart(
    pools: Pools, traffic: Traffic, load: Load, target: SLO, most_steps: int = 0, cut: float = 0.0
) -> ServeEstimate:
    """Serve requests one by one, prompts in one pool and answers in another: see `serve_traffic`."""
    link = pools.link
    transfer = Transfer(link.bytes_per_s, link.latency_s, link.layers > 1, link.layers)
    run = simulate_apart(traffic, _pool(pools.prefill), _pool(pools.decode), transfer, most_steps)
    kept = run.middle(cut) if cut else run
    lengths = mean_lengths(kept)
    served = _as_metrics(kept, pools.decode, 1, kept.fullness[1])
    moved = transfer.time_s(pools.prefill.times.kv_bytes(np.asarray(lengths.prompt, dtype=np.float64)))
    able = rates(*pools.workers, lengths)
    # As in closed forms: a decode worker is never idle while one sequence runs, and far from full.
    first, then = (np.asarray(kept.requests_per_s / per_s) for per_s in (able.prefill_per_s, able.decode_per_s))
    found = PoolMetrics(served, first, then, moved, pools.num_gpus)
    answer = answer_of_pools(replace(pools, found=found), found, lengths, load, most_of(pools, lengths))
    return _finished(answer, kept, traffic, target, _cautions(traffic, pools.prefill, pools.decode))


def _pool(server: Server) -> Pool:
    # Requests that keep step with each other do so by themselves here.
    return Pool(
        server.times,
        server.engine.at_random,
        server.num_replicas,
        failures=server.failures,
        autoscaling=server.autoscaling,
    )


def _cautions(traffic: Traffic, *servers: Server) -> Iterator[str]:
    """What a simulation leaves out, or sets up, that moves its answer."""
    first = traffic.arrival_s[: traffic.clients]
    if len(first) > 1 and not np.ptp(first):
        yield (
            "clients start together, and where requests are alike they stay in step: ramp=TIME, as long as a request "
            "takes, spreads them"
        )
    if any(server.times.coupled > 1 for server in servers):
        yield "replicas that share experts are simulated apart: their steps do not wait for one another"


def _finished(
    answer: ServeEstimate, kept: SimulatedServing, traffic: Traffic, target: SLO, cautions: Iterator[str]
) -> ServeEstimate:
    """The answer with how latencies spread, how many requests are in time, and whether too many come."""
    most_per_s = answer.metrics["requests_per_s"] / answer.metrics["serve_utilization"]
    warnings = (*answer.warnings, *cautions)
    failures, failed, failing = answer.server.failures, kept.failed, dict[str, float]()
    if failures is not None and failed is not None:
        most_per_s *= failures.availability
        warnings += (failure_note(failures, failed, answer.server.num_replicas),)
        failing = {
            "replica_mtbf_s": failures.mtbf_s,
            "replica_availability": failures.availability,
            "replica_up_share": failed.up_share,
            "replica_failures": float(failed.failures),
            "requests_restarted": float(failed.restarted),
        }
    warnings += tuple(overload_notes(traffic.request_rate, most_per_s))
    full = kept.fullness[-1]
    of_run = {
        "num_requests": float(len(kept.served.output)),
        "duration_s": kept.duration_s,
        "batch": full.batch_mean,
        "peak_batch": full.batch_peak,
        "kv_cache_share": full.kv_mean,
        "peak_kv_cache_share": full.kv_peak,
        "preemptions": float(kept.preemptions),
    }
    metrics = {**answer.metrics, **dict(_spreads(kept)), **failing, **of_run}
    if target:
        asked = {
            name: value for name, value in (("ttft_s", target.ttft_s), ("tpot_s", target.tpot_s)) if value is not None
        }
        good = kept.goodput(**asked)
        metrics |= {"request_goodput_rps": good.requests_per_s, "request_goodput_share": good.share}
    return replace(answer, metrics=metrics, simulated=kept, warnings=warnings)


def mean_lengths(run: SimulatedServing) -> Lengths:
    """Return the mean request, in whole tokens."""
    served = run.served
    prompt, output, cached = (
        max(round(float(a.mean())), least) for a, least in ((served.prompt, 1), (served.output, 1), (served.cached, 0))
    )
    return Lengths(float(prompt), float(output), float(min(cached, prompt - 1)))


def _as_metrics(run: SimulatedServing, server: Server, replicas: float, full: Fullness) -> ServingMetrics:
    """The mean request of one of so many replicas, on average where they come and go."""
    lengths = mean_lengths(run)
    rate = run.requests_per_s / replicas
    first = run.ttft_s
    # The mean over gaps, so that TTFT and all gaps of the mean request add up to its time.
    gaps = float(lengths.gaps)
    gap = (run.e2el.mean - run.ttft.mean) / gaps if gaps else np.nan
    batch = max(full.batch_mean, 1.0)
    return ServingMetrics(
        concurrency=np.asarray(rate * run.e2el.mean),
        batch=np.asarray(batch),
        # Little's law of those that have their first token and not yet their last.
        decodes=np.asarray(min(max(rate * gaps * gap, 1.0), batch) if gaps else 1.0),
        prompt=np.asarray(lengths.prompt),
        output=np.asarray(lengths.output),
        ttft_s=np.asarray(run.ttft.mean),
        ttft_low_s=np.asarray(first.min()),
        ttft_high_s=np.asarray(first.max()),
        tpot_s=np.asarray(gap),
        requests_per_s=np.asarray(rate),
        stall_s=np.asarray(run.itl.longest),
        tokens_per_gap=server.tokens_per_gap,
    )


def _spreads(run: SimulatedServing) -> Iterator[tuple[str, float]]:
    for name, one in (("ttft", run.ttft), ("tpot", run.tpot), ("itl", run.itl), ("e2el", run.e2el)):
        if np.isnan(one.mean):
            continue
        yield f"{name}_s", one.mean
        for part, value in (("p50", one.median), ("p90", one.p90), ("p99", one.p99)):
            yield f"{name}_{part}_s", value
