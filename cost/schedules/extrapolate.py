"""Steps of any schedule over plans: run with few micro-batches, and carried on from there in even steps.

The longest chain of tasks grows with the micro-batches as a maximum of straight lines does: slowly while it fills the
pipeline, and at last by the time of one micro-batch at the slowest place. So the growth seen lies below that of later
micro-batches, and the slowest stage's time on one lies above; where the two leave more than 1 % open, the plan is run
with more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...ir.pipelines import BIDIRECTIONAL, V_SHAPED
from .line import Row
from .tasks import Array
from .waves import rows_of, waves_of

# Rounds of p micro-batches that are run; plans that are not settled then are run with twice as many, at most the last.
ROUNDS, LAST = 4, 32
OPEN = 0.01
# Numbers that one run holds at a time.
_HELD = 500_000


def extrapolated_s(
    schedule: str, row: Row, times: tuple[Array, Array, Array, Array], num_micro_batches: Array, key: int
) -> Array:
    """Return the seconds of a step.

    Args:
        schedule: its name.
        row: the stages.
        times: forward, dgrad, wgrad and send seconds of each class, as (class, plan).
        num_micro_batches: micro-batches of each plan.
        key: their number where it is at most 4 p, the same for all plans; more otherwise.
    """
    stage_class = [kind for kind, _, num in row.runs for _ in range(num)]
    share = 0.5 if schedule in V_SHAPED else 1.0
    forward, dgrad, wgrad = (a[stage_class] * share for a in times[:3])
    rows, sends = rows_of(forward, dgrad, wgrad), np.vstack([times[3][stage_class], num_micro_batches * 0.0])
    if key <= ROUNDS * row.num_stages:
        return _run(schedule, row.num_stages, key, rows, sends)
    slowest_s = (times[0] + times[1] + times[2])[stage_class].max(axis=0)
    return _carried_on(schedule, row.num_stages, (rows, sends, slowest_s), num_micro_batches)


def _carried_on(schedule: str, p: int, times: tuple[Array, Array, Array], num_micro_batches: Array) -> Array:
    found = np.zeros_like(num_micro_batches)
    rounds, left = ROUNDS, np.arange(len(num_micro_batches))
    while len(left):
        rows, sends, slowest_s = (a[..., left] for a in times)
        m = num_micro_batches[left]
        more = m - float(rounds * p)
        so_far = _run(schedule, p, rounds * p, rows, sends)
        growth = (so_far - _run(schedule, p, (rounds - 1) * p, rows, sends)) / p
        open_s = more * np.maximum(slowest_s - growth, 0.0)
        found[left] = so_far + more * growth + 0.5 * open_s
        left = left[open_s > OPEN * found[left]] if rounds < LAST else left[:0]
        rounds *= 2
    return found


def _run(schedule: str, p: int, num_micro_batches: int, rows: Array, sends: Array) -> Array:
    """Run so many micro-batches, as many plans at a time as stay in the cache."""
    chunks = 2 if schedule in V_SHAPED + BIDIRECTIONAL else 1
    waves = waves_of(schedule, p, num_micro_batches, chunks)
    width = max(_HELD // waves.num_units, 8)
    parts: list[NDArray[np.float64]] = [
        waves.step_s(rows[:, k : k + width], sends[:, k : k + width]) for k in range(0, rows.shape[1], width)
    ]
    return np.concatenate(parts)
