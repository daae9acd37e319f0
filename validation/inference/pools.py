"""Disaggregated cases: a pool of workers for prompts and one for decodes, tied by the rate of their requests."""

from __future__ import annotations

from dataclasses import replace

from ...backends.machine.system import System
from ...cost.serving.disaggregated import Link, Pool, disaggregated
from ...cost.serving.metrics import ServingMetrics
from ..rows.rows import NotJudged
from . import replicas
from .bench import Bench
from .cases import ServedCase


def pooled(case: ServedCase, bench: Bench) -> ServingMetrics:
    """Return latencies and rates of the pools of a case.

    Groups of ranks that attend apart are workers of their own: each has its own prompts and its own cache. Caches go at
    the end of their prompts over the network that reaches all devices.
    """
    prefill, decode = case.layout.prefill, case.layout.decode
    if prefill is None or decode is None:
        raise NotJudged("its pools are not given")
    num = sum(pool.workers * pool.laid.replica.num_gpus for pool in (prefill, decode))
    link = _link(bench.system(case), num)
    return disaggregated(_pool(case, prefill, bench), _pool(case, decode, bench), link, case.batch, case.lengths).served


def _pool(case: ServedCase, pool: replicas.Pool, bench: Bench) -> Pool:
    replica, engine = pool.laid.replica, bench.engine(case)
    wide = replace(engine.scheduler, max_num_seqs=max(engine.scheduler.max_num_seqs, pool.batch))
    return Pool(
        times=bench.times(case, replica), engine=replace(engine, scheduler=wide),
        workers=pool.workers * replica.attention_dp, gpus=replica.num_gpus // replica.attention_dp, batch=pool.batch,
    )  # fmt: skip


def _link(system: System, num_gpus: int) -> Link:
    """The innermost level of the network that holds all devices, as one device uses it."""
    level = next((one for one in system.levels if one.size is None or one.size >= num_gpus), system.levels[-1])
    return Link(bytes_per_s=float(level.bytes_per_s * level.efficiency), latency_s=float(level.latency_s))
