"""How many rows each expert of a rank gets: evenly, or by a power law and then on the busiest rank."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...ir.plan.experts.power_law import DRAWS, power_law_rows
from .terms import Array


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

    Rows are drawn as `power_law_rows` has it.

    Args:
        tokens: tokens of the whole expert-parallel group.
        num_experts: experts of all ranks; `ep` divides them.
        top_k: experts of a token.
        ep: ranks.
        exponent: of the power law, not 1: greater is more skewed.
        draws: rows of the result; the same draws every time.
    """
    rows = power_law_rows(tokens, num_experts, top_k, exponent, draws)
    ranks = rows.reshape(draws, ep, -1)
    busiest = ranks.sum(axis=2).argmax(axis=1)
    return _kept(ranks[np.arange(draws), busiest].astype(np.float64))


def _kept(loads: Array) -> Array:
    """What is remembered must not be changed."""
    loads.setflags(write=False)
    return loads
