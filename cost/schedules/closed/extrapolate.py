"""Steps of any schedule over plans: run with few micro-batches, and carried on from there in even steps.

The longest chain of tasks grows with the micro-batches as a maximum of straight lines does: slowly while it fills the
pipeline, and at last by the time of one micro-batch at the slowest place. So the growth seen lies below that of later
micro-batches, and the slowest stage's time on one lies above; where the two leave more than 1 % open, the plan is run
with more.
"""

from __future__ import annotations

import numpy as np

from ....ir.schedules.kind import ScheduleKind
from ..tasks import Array
from .waves import waves_of

# Rounds of micro-batches up to which plans that are not settled are run, twice as many at a time.
LAST = 24
OPEN = 0.01
# Numbers that one run holds at a time.
_HELD = 1_500_000


def extrapolated_s(
    schedule: ScheduleKind, times: Array, num_micro_batches: Array, key: int, chunks: int, each: int
) -> Array:
    """Return the seconds of a step.

    Args:
        schedule: what orders the tasks.
        times: forward, dgrad, wgrad and send seconds of one chunk of each stage, as (4, stage, plan).
        num_micro_batches: micro-batches of each plan.
        key: their number where it is at most that of the first rounds, the same for all plans; more otherwise.
        chunks: of each stage, of all copies of the model together.
        each: micro-batches of a round.
    """
    share = schedule.copies / chunks
    slowest_s = (times[0] + times[1] + times[2]).max(axis=0) / share
    found, left = np.zeros_like(num_micro_batches), np.arange(len(num_micro_batches))
    rounds = schedule.filling_rounds
    if key <= rounds * each:
        return np.asarray(_run(schedule, chunks, (key,), times)[0])
    while len(left):
        m = num_micro_batches[left]
        so_far, before = _run(schedule, chunks, (rounds * each, (rounds - 1) * each), times[..., left])
        growth = (so_far - before) / each
        more = m - float(rounds * each)
        open_s = more * np.maximum(slowest_s[left] - growth, 0.0)
        found[left] = so_far + more * growth + 0.5 * open_s
        rounds *= 2
        # Plans that are not settled are run with more micro-batches, with their own where these are few.
        unsettled = open_s > OPEN * found[left]
        few = unsettled & (m <= rounds * each)
        for number in np.unique(m[few]):
            plans = left[few & (m == number)]
            found[plans] = _run(schedule, chunks, (int(number),), times[..., plans])[0]
        left = left[unsettled & ~few] if rounds <= LAST else left[:0]
    return found


def _run(schedule: ScheduleKind, chunks: int, num_micro_batches: tuple[int, ...], times: Array) -> Array:
    """Run steps of so many micro-batches, as (step, plan); as many plans at a time as stay in the cache."""
    waves = waves_of(schedule.name, times.shape[1], num_micro_batches, chunks)
    width = max(_HELD // waves.num_units, 8)
    starts = range(0, times.shape[2], width)
    return np.concatenate([waves.step_s(*times[..., k : k + width]) for k in starts], axis=1)
