"""Steps of any schedule over plans: run with some micro-batches, and carried on from there in even steps.

The longest chain of tasks grows with the micro-batches as a maximum of straight lines does: slowly while it fills the
pipeline, and at last by the time of one micro-batch at the slowest stage. So

    step(m) <= step(n) + (m - n) slowest,  m >= n

with equality once the pipeline is full; where messages take time and tasks wait for each, by the growth of the last
round, if that is more. The right side is what is returned: a sum of two terms that grow with the time
of every task, so that no task that gets faster ever makes a step longer. What had been estimated between this bound and
the growth seen so far had not that property. With times that differ by up to 15 % from stage to stage, and end stages
up to half longer, the bound lies at most 0.5 % above the run with every micro-batch, 0.01 % in the mean.
"""

from __future__ import annotations

import numpy as np

from ....ir.schedules.kind import ScheduleKind
from ..tasks import Array
from .waves import waves_of

# Numbers that one run holds at a time.
_HELD = 1_500_000
# Steps that are run have so many times the rounds that fill the pipeline.
_OVER = 2


def rounds_run(schedule: ScheduleKind) -> int:
    """Return the rounds of micro-batches that are run; from there on a step grows evenly."""
    return _OVER * schedule.filling_rounds


def extrapolated_s(schedule: ScheduleKind, times: Array, num_micro_batches: Array, num_run: int, chunks: int) -> Array:
    """Return the seconds of a step.

    Args:
        schedule: what orders the tasks.
        times: forward, dgrad, wgrad and send seconds of one chunk of each stage, as (4, stage, plan).
        num_micro_batches: micro-batches of each plan.
        num_run: micro-batches that are run; plans have as many or more.
        chunks: of each stage, of all copies of the model together.
    """
    so_far = _run(schedule, chunks, num_run, times)
    growth_s = (times[0] + times[1] + times[2]).max(axis=0) * (chunks / schedule.copies)
    waits = times[3].any(axis=0)
    if waits.any() and np.any(num_micro_batches > num_run):
        # Joined tasks wait for a message each time round.
        fewer = num_run - num_run // rounds_run(schedule)
        seen_s = (so_far - _run(schedule, chunks, fewer, times)) / (num_run - fewer)
        growth_s = np.where(waits, np.maximum(growth_s, seen_s), growth_s)
    return np.asarray(so_far + (num_micro_batches - num_run) * growth_s)


def _run(schedule: ScheduleKind, chunks: int, num_micro_batches: int, times: Array) -> Array:
    """Run a step of so many micro-batches, as many plans at a time as stay in the cache."""
    waves = waves_of(schedule.name, times.shape[1], num_micro_batches, chunks)
    width = max(_HELD // waves.num_units, 8)
    starts = range(0, times.shape[2], width)
    return np.concatenate([waves.step_s(*times[..., k : k + width]) for k in starts])
