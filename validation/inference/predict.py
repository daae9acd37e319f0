"""Cases to predictions: each form of load by its own closed form on the times of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...backends.machine.software.engine import Engine
from ...cost.serving.batching.continuous import most_throughput, steady
from ...cost.serving.batching.offline import offline
from ...cost.serving.batching.static import static_batch
from ...cost.serving.batching.times import StepTimes
from ...cost.serving.disaggregated import TransferLink, WorkerGroup, disaggregated
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.traffic.requests import Lengths
from ...ir.records import dataclass
from ..rows.rows import NotJudged
from . import replicas
from .bench import InferenceBench
from .cases import ServedCase
from .forms import CaseQuantity, RequestForm

# Disaggregated cases: a pool of workers for prompts and one for decodes, tied by the rate of their requests.


def pooled(case: ServedCase, bench: InferenceBench) -> ServingMetrics:
    """Return latencies and rates of the pools of a case.

    Groups of ranks that attend apart are workers of their own: each has its own prompts and its own cache. Caches go at
    the end of their prompts over the network that reaches all devices.
    """
    prefill, decode = case.layout.prefill, case.layout.decode
    if prefill is None or decode is None:
        raise NotJudged("its pools are not given")
    num = sum(pool.workers * pool.laid.replica.num_gpus for pool in (prefill, decode))
    # The innermost level of the network that holds all devices, as one device uses it.
    system = bench.system(case)
    level = next((one for one in system.levels if one.size is None or one.size >= num), system.levels[-1])
    link = TransferLink(bytes_per_s=float(level.bytes_per_s * level.efficiency), latency_s=float(level.latency_s))
    return disaggregated(_pool(case, prefill, bench), _pool(case, decode, bench), link, case.batch, case.lengths).served


def _pool(case: ServedCase, pool: replicas.ReplicaPool, bench: InferenceBench) -> WorkerGroup:
    replica, engine = pool.laid.replica, bench.engine(case)
    wide = replace(engine.scheduler, max_num_seqs=max(engine.scheduler.max_num_seqs, pool.batch))
    return WorkerGroup(
        times=bench.times(case, replica),
        engine=replace(engine, scheduler=wide),
        workers=pool.workers * replica.attention_dp,
        gpus=replica.num_gpus // replica.attention_dp,
        batch=pool.batch,
    )


@dataclass(frozen=True, slots=True)
class Predicted:
    """A quantity: seconds, or tokens a second of all devices of the case.

    `low` and `high` are there where the arrivals of others decide, which no row tells: its value lies between.
    """

    value: float
    low: float | None = None
    high: float | None = None


Answers = Mapping[CaseQuantity, Predicted]


def predicted(case: ServedCase, bench: InferenceBench) -> Answers:
    """Return every quantity of a case; errors of the product where it cannot run as said."""
    if case.form is RequestForm.POOLS:
        if case.layout.prefill is None or case.layout.decode is None:
            raise NotJudged("its pools are not given")
        return _loaded(pooled(case, bench), 1)
    replica = case.layout.replica.replica
    times, engine = bench.times(case, replica), bench.engine(case)
    if case.form is RequestForm.STATIC:
        # An engine that takes a static batch as a whole: one built ahead is built for the batch that is
        # measured.
        scheduler = engine.scheduler
        found = static_batch(
            times,
            replace(engine, scheduler=replace(scheduler, max_num_seqs=max(scheduler.max_num_seqs, case.batch))),
            case.batch,
            case.lengths,
        )
        # Of a batch that runs in waves a first token is of the first wave, of the last, or between.
        ends = _number(found.ttft_low_s), _number(found.ttft_high_s)
        return {
            CaseQuantity.TTFT: Predicted(_number(found.ttft_s), *(ends if ends[0] < ends[1] else ())),
            CaseQuantity.TPOT: Predicted(_number(found.tpot_s)),
            CaseQuantity.E2EL: Predicted(_number(found.e2el_s)),
            CaseQuantity.THROUGHPUT: _rate(found, replica.attention_dp),
        }
    if case.form is RequestForm.FIRST_TOKEN:
        alone = static_batch(times, engine, 1.0, Lengths(case.lengths.prompt, 1.0))
        return {CaseQuantity.TTFT: Predicted(_number(alone.ttft_s))}
    if case.form is RequestForm.CLOSED_LOOP:
        return _loaded(steady(times, engine, case.batch, case.lengths), replica.attention_dp)
    return {CaseQuantity.THROUGHPUT: _rate(_saturated(case, times, engine), replica.attention_dp)}


def _saturated(case: ServedCase, times: StepTimes, engine: Engine) -> ServingMetrics:
    """Requests without end, or as many as were sent: each group of ranks that attend apart has its share."""
    if case.settings.requests is None:
        return most_throughput(times, engine, case.lengths)
    share = max(1.0, case.settings.requests / case.layout.replica.replica.attention_dp)
    return offline(times, engine, share, case.lengths)


def _loaded(found: ServingMetrics, groups: int) -> Answers:
    ends = (_number(found.ttft_low_s), _number(found.ttft_high_s)) if _number(found.concurrency) > 1 else (None, None)
    return {
        CaseQuantity.TTFT: Predicted(_number(found.ttft_s), *ends),
        CaseQuantity.TPOT: Predicted(_number(found.tpot_s)),
        CaseQuantity.E2EL: Predicted(_number(found.e2el_s)),
        CaseQuantity.THROUGHPUT: _rate(found, groups),
    }


def _rate(found: ServingMetrics, groups: int) -> Predicted:
    return Predicted(_number(found.output_tokens_per_s) * groups)


def _number(value: object) -> float:
    return float(np.asarray(value, dtype=np.float64).ravel()[0])
