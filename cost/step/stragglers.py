"""What a synchronous step waits for its slowest rank: more, the more ranks there are.

Equal devices are not equally fast: silicon, cooling and power differ, and so do the hosts beside them. A step ends when
the slowest of n ranks has done its work. Where the times of ranks have a mean t and a standard deviation s t, that is
after t (1 + s E[n]), where E[n] is the expected maximum of n standard normal numbers (Cramer, Mathematical Methods of
Statistics, 1946, 28.6):

    E[n] = a - (ln ln n + ln 4 pi - 2 gamma) / 2a,  a = sqrt(2 ln n)

Constants of stacks were fitted to steps on nodes of 8, which wait for the slowest of 8 already: only what more ranks
add is a part of its own, s (E[n] - E[8]). It is 1.6 s for 512 ranks, 2.3 s for 8,192 and 2.5 s for 16,384.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...ir.plan import PlanTable
from .account import Account, total_of

Array = NDArray[np.float64]
STRAGGLERS = "stragglers"
# Ranks of a node, whose waiting is in what was fitted to their steps.
_FITTED_RANKS = 8.0
# Messages and copies take as long whatever a rank computes.
_NO_WORK = ("comm.", "offload")


def expected_maximum(ranks: Array) -> Array:
    """Return the expected maximum of as many standard normal numbers; at least 8 of them.

    >>> expected_maximum(np.array([8.0, 512.0, 8192.0])).round(2)
    array([1.52, 3.08, 3.82])
    """
    most = np.sqrt(2.0 * np.log(np.maximum(ranks, _FITTED_RANKS)))
    return np.asarray(most - (np.log(most * most / 2.0) + np.log(4.0 * np.pi) - 2.0 * np.euler_gamma) / (2.0 * most))


def waited_for_stragglers(step: Account, plans: PlanTable, spread: float) -> Array:
    """Return what a step waits for the slowest of all ranks, beyond what 8 of them wait: seconds, plan by plan.

    spread x (E[n] - E[8]) x (the step without exposed messages and copies).
    """
    work = total_of({part: seconds for part, seconds in step.exposed.items() if not part.startswith(_NO_WORK)})
    ranks = np.asarray(plans.num_gpus, dtype=float)
    return np.asarray(spread * (expected_maximum(ranks) - expected_maximum(np.full(1, _FITTED_RANKS))) * work)
