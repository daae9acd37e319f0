"""Rows of experts whose popularity is a power law, drawn at random."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
# Draws that a mean is taken over, and what they start from: the same answer every time.
DRAWS, SEED = 32, 20250731
# Below one row an expert on average, draws are from 0.01 to 2 rows; above, from 1 row to 0.8 of the tokens.
SPARSE_RANGE, DENSE_LOW, DENSE_HIGH = (0.01, 2.0), 1.0, 0.8


@lru_cache(maxsize=512)
def power_law_rows(tokens: int, num_experts: int, top_k: int, exponent: float, draws: int = DRAWS) -> Counts:
    """Return the rows of each expert, draws x experts: each draw adds up to tokens x top_k.

    Loads are drawn from a power law between bounds, scaled to tokens x top_k rows, rounded, and cut off at one row a
    token; what is then missing goes to the least loaded experts, the first of them first. After the sampling that the
    collector of aiconfigurator's measurements of experts documents.

    Args:
        tokens: whose rows these are.
        num_experts: of the model.
        top_k: experts of a token.
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
    # Make each draw add up: add to the least loaded experts in order, or take from the most loaded.
    lacking = tokens * top_k - counts.sum(axis=1)
    more = _filled(counts, np.maximum(lacking, 0))
    less = -_filled(-counts, np.maximum(-lacking, 0))
    found = np.where(lacking[:, None] >= 0, more, less)
    # What is remembered must not be changed.
    found.setflags(write=False)
    return found


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
