"""Ranks that attend apart and share experts: what is a rank's own takes as long as on the one with most prompts.

What they share, experts and the way to them, goes by the prompts of all: a rank's mean.
"""

from __future__ import annotations

import numpy as np

from .times import Array

# Prompts a step beyond which the spread around the mean is that of a normal law.
_MANY = 30.0
_TERMS = 80


def met(prompts: Array, ranks: int, shared: float, most: Array) -> Array:
    """Return the prompts a step that a request meets, of `ranks` of which each has `prompts` on average.

    `shared * mean + (1 - shared) * busiest`, where `shared` is the part of a prompt's work that all ranks share.

    >>> float(met(np.array(0.1), 8, 1.0, np.array(9.0)))
    0.1
    """
    return np.asarray(shared * prompts + (1.0 - shared) * busiest(prompts, ranks, most))


def busiest(prompts: Array, ranks: int, most: Array) -> Array:
    """Return the prompts of the busiest of `ranks` in a step, where each has `prompts` on average, at random moments.

    The mean of the greatest of so many Poisson numbers, sum over k of 1 - P(N <= k)^ranks; beyond thirty
    `r + sqrt(2 ln(ranks) r)`. No rank takes more than `most`, nor fewer than the mean.

    >>> busiest(np.array([0.1]), 1, np.array([9.0])), busiest(np.array([0.1]), 8, np.array([9.0])).round(2)
    (array([0.1]), array([0.59]))
    """
    if ranks <= 1:
        return prompts
    few = np.minimum(prompts, _MANY)
    term = np.exp(-few)
    below, found = term.copy(), np.zeros_like(few)
    for k in range(1, _TERMS):
        found += 1.0 - np.minimum(below, 1.0) ** ranks
        term = term * few / k
        below = below + term
    many = prompts + np.sqrt(2.0 * np.log(ranks) * prompts)
    greatest = np.where(prompts > _MANY, many, found)
    return np.asarray(np.maximum(np.minimum(greatest, most), prompts))
