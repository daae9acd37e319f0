"""How many rows each expert of a rank gets: evenly, or by a power law and then on the busiest rank."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .terms import Array

Counts = NDArray[np.int64]
# Draws that a mean is taken over, and what they start from: the same answer every time.
DRAWS, SEED = 32, 20250731
# Below one row an expert on average, draws are from 0.01 to 2 rows; above, from 1 row to 0.8 of the tokens.
SPARSE_RANGE, DENSE_LOW, DENSE_HIGH = (0.01, 2.0), 1.0, 0.8


@lru_cache(maxsize=4096)
def balanced_loads(tokens: int, num_experts: int, top_k: int, ep: int) -> Array:
    """Return the rows of each expert of the first rank, one draw: tokens take experts in turn, `top_k` far apart.

    >>> balanced_loads(4, 16, 2, 4)  # eight rows on sixteen experts
    array([[1., 0., 1., 0.]])
    >>> balanced_loads(64, 8, 2, 8)
    array([[16.]])
    """
    stride = -(-num_experts // top_k)
    step = 1.0 if tokens >= stride else stride / tokens
    token, copy = np.arange(tokens)[:, None], np.arange(top_k)[None, :]
    chosen = np.floor(token * step + copy * stride).astype(np.int64) % num_experts
    counts = np.bincount(chosen.ravel(), minlength=num_experts).astype(np.float64)
    return _kept(counts[None, : num_experts // ep])


@lru_cache(maxsize=4096)
def power_law_loads(tokens: int, num_experts: int, top_k: int, ep: int, exponent: float, draws: int = DRAWS) -> Array:
    """Return the rows of each expert of the busiest of `ep` ranks, draws x experts of a rank.

    Loads are drawn from a power law between bounds, scaled to tokens x top_k rows, rounded, and cut off at one row a
    token; what is then missing goes to the least loaded experts, the first of them first. After the sampling that the
    collector of aiconfigurator's measurements of experts documents.

    Args:
        tokens: tokens of the whole expert-parallel group.
        num_experts: experts of all ranks; `ep` divides them.
        top_k: experts of a token.
        ep: ranks.
        exponent: of the power law, not 1: greater is more skewed.
        draws: rows of the result; the same draws every time.
    """
    random = np.random.default_rng((SEED, tokens, num_experts, top_k, round(exponent * 1e6)))
    dense = tokens * top_k > num_experts
    low, high = (DENSE_LOW, DENSE_HIGH * tokens) if dense else SPARSE_RANGE
    # Invert the distribution function of x^-exponent between bounds.
    uniform = random.random((draws, num_experts))
    power = 1.0 - exponent
    start, end = low**power, high**power
    wanted = np.asarray((start + (end - start) * uniform) ** (1.0 / power))
    wanted *= tokens * top_k / wanted.sum(axis=1, keepdims=True)
    counts = np.minimum(np.rint(wanted).astype(np.int64), tokens)
    # Make each draw add up to `total`: add to the least loaded experts in order, or take from the
    # most loaded.
    lacking = (tokens * top_k) - counts.sum(axis=1)
    more = _filled(counts, np.maximum(lacking, 0))
    less = -_filled(-counts, np.maximum(-lacking, 0))
    ranks = np.where(lacking[:, None] >= 0, more, less).reshape(draws, ep, -1)
    busiest = ranks.sum(axis=2).argmax(axis=1)
    return _kept(ranks[np.arange(draws), busiest].astype(np.float64))


def power_law_imbalance(tokens: int, num_experts: int, top_k: int, ep: int, exponent: float) -> float:
    """Return the rows of the busiest rank over the mean, averaged over draws: 1 when balanced, at most `ep`.

    >>> round(power_law_imbalance(8192, 256, 8, 1, 1.2), 3)
    1.0
    """
    loads = power_law_loads(tokens, num_experts, top_k, ep, exponent)
    return float(loads.sum(axis=1).mean() / (tokens * top_k / ep))


def _filled(counts: Counts, added: Counts) -> Counts:
    """Add units one by one, each to the least: raise all to a level, then as many by one more as are left."""
    ordered = np.sort(counts, axis=-1)
    size = counts.shape[-1]
    below = np.arange(1, size + 1) * ordered - np.cumsum(ordered, axis=-1)
    reached = (below <= added[..., None]).sum(axis=-1, keepdims=True)
    held = np.take_along_axis(np.cumsum(ordered, axis=-1), reached - 1, axis=-1)
    level, rest = np.divmod(held + added[..., None], reached)
    raised = np.maximum(counts, level)
    order = np.argsort(np.argsort(counts, axis=-1, kind="stable"), axis=-1, kind="stable")
    return np.where((order < rest) & (order < reached), raised + 1, raised)


def _kept(loads: Array) -> Array:
    """What is remembered must not be changed."""
    loads.setflags(write=False)
    return loads
