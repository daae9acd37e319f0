"""How many micro-batches' activations a pipeline stage holds at once, schedule by schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...ir.plan import PlanTable
from ...ir.plan.layout.pipelines import BIDIRECTIONAL
from ..step.stages import Staging

Array = NDArray[np.float64]

# Of these, the last stage runs the gradients of weights as late as the others and keeps what they read.
_LATE_ON_THE_LAST = ("zb-h1", "zb-h2")


def in_flight(staging: Staging, cls: int, plans: PlanTable) -> Array:
    """Return how many micro-batches' activations the earliest stage of a class holds at most, in all it holds.

    With p stages, v chunks, m micro-batches and stage i:

    - 1F1B: min(m, p - i). Interleaved in rounds of r micro-batches, r = p or what `round_size` says:
      min(m v, 2 (p - i - 1) + (v - 1) r + 1) / v, of the stage's layers 1/v each.
      GPipe: m. (Narayanan et al., arXiv 2104.04473; Korthikanti et al., arXiv 2205.05198.)
    - ZB-H1: min(m, p), ZB-H2: min(m, 2 p - 1) on every stage: what the gradients of weights read is kept until they
      run (Qi et al., arXiv 2401.10241). ZB-H1 interleaved: min(m v, (v - 1) r + p) / v.
    - ZB-V: (min(m, 2 p - 1 - i) + min(m, i + 1)) / 2, at most p: two chunks of half the stage's layers
      (arXiv 2405.15362).
    - DualPipe: p + 1 micro-batches, each in one of the two copies: (p + 1) / 2 of what the stage holds
      (arXiv 2412.19437, table 2).
    - DualPipeV: 2 p + 1 chunks of half the stage's layers, as DualPipe with two such stages side by side has.
    """
    p, v, m = staging.stages, staging.chunks, plans.num_micro_batches
    stage = staging.first[staging.which, cls]
    schedule = plans.family.schedule
    if schedule == "gpipe":
        return np.where(p > 1.0, m, 1.0)
    if schedule in BIDIRECTIONAL:
        return np.asarray((p + 1.0) / 2.0)
    if schedule == "dualpipe-v":
        return np.asarray(p + 0.5)
    if schedule == "zb-v":
        return np.asarray(np.minimum(m, 2.0 * p - 1.0 - stage) + np.minimum(m, stage + 1.0)) / 2.0
    if schedule == "zb-h2":
        return np.asarray(np.minimum(m, 2.0 * p - 1.0))
    each = m // np.maximum(m // p, 1.0)
    if schedule == "zb-h1":
        return np.asarray(np.minimum(m * v, (v - 1.0) * each + p) / v)
    behind = p - stage
    warm = np.where(v > 1.0, 2.0 * (behind - 1.0) + (v - 1.0) * each + 1.0, behind)
    return np.asarray(np.minimum(m * v, warm) / v)


def used_at_once(schedule: str) -> bool:
    """Return whether the last region's activations are used as soon as they are there, one micro-batch at a time."""
    return schedule != "gpipe" and schedule not in _LATE_ON_THE_LAST
