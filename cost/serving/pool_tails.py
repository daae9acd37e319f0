"""Percentiles of disaggregated prefill and decode under requests that come at random, in closed form.

A prompt waits for one of `n` prefill workers with the chance of Sakasegawa's formula, and then exponentially:

    P(wait > t) = rho^(sqrt(2 (n + 1)) - 1) exp(-2 n (1 - rho) t / s)         s seconds of a batch, rho busy

whose mean is that of the closed form of means. A decode worker is a queue of shared processors: with `b` in flight on
average the number has the variance `b kappa`, `kappa = 1 / (1 - b tpot'(b) / tpot(b))`, and deviations last `kappa`
lives, so that in the mean over a life `2 kappa^2 (1 / kappa - 1 + exp(-1 / kappa))` of the variance is left.

Sources: H. Sakasegawa, Annals of the Institute of Statistical Mathematics 29, 1977; F. P. Kelly, Reversibility and
Stochastic Networks, 1979.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from .batching.times import Array
from .disaggregated import PoolMetrics, PoolPair, PromptPool
from .slo import SLO

# The step at which the growth of a decode step is taken, and the most of it: at 1 the queue has no end.
_STEP, _STEEPEST = 1.0, 0.95


def with_pool_tails(found: PoolMetrics, pair: PoolPair, slo: SLO) -> PoolMetrics:
    """Put the percentiles of an SLO beside the means of pools; infinite where a pool is full."""
    if not slo.of_tails:
        return found
    full = np.maximum(found.prefill_busy, found.decode_busy) >= 1.0
    first = _ttft_s(found, pair.prompts, 0.5 if slo.ttft_share is None else slo.ttft_share)
    gap = _tpot_s(found, pair, 0.5 if slo.tpot_share is None else slo.tpot_share)
    shape = found.served.ttft_s.shape
    tails = (np.broadcast_to(np.where(full, np.inf, one), shape) for one in (first, gap))
    ttft_s, tpot_s = (np.array(one) for one in tails)
    return replace(found, served=replace(found.served, ttft_tail_s=ttft_s, tpot_tail_s=tpot_s))


def _ttft_s(found: PoolMetrics, prompts: PromptPool, share: float) -> Array:
    workers, served = prompts.workers, prompts.full_s
    busy = np.minimum(found.prefill_busy, 1.0 - 1e-9)
    chance = np.power(busy, np.sqrt(2.0 * (workers + 1.0)) - 1.0)
    wait = served / workers / (1.0 - busy) / 2.0 * np.maximum(np.log(np.maximum(chance, 1e-300) / (1.0 - share)), 0.0)
    return np.asarray(prompts.soonest_s + busy * (served - prompts.alone_s) + wait)


def _tpot_s(found: PoolMetrics, pair: PoolPair, share: float) -> Array:
    batch, tpot_s = np.maximum(found.served.batch, 1e-6), pair.tokens.tpot_s
    here, more = (tpot_s(at) for at in (batch + 1.0, batch + 1.0 + _STEP))
    steep = np.clip(batch * (more - here) / _STEP / here, 0.0, _STEEPEST)
    wide = 1.0 / (1.0 - steep)
    left = 2.0 * wide**2 * (1.0 / wide + np.expm1(-1.0 / wide))
    above = NormalDist().inv_cdf(share) * np.sqrt(batch * wide * left)
    return np.asarray(tpot_s(np.clip(batch + 1.0 + above, 1.0, np.maximum(pair.able.batch, 1.0))))
