"""Steps of any schedule over plans: run with few micro-batches, and carried on from there in even steps.

The longest chain of tasks grows with the micro-batches as a maximum of straight lines does: slowly while it fills the
pipeline, and at last by the time of one micro-batch at the slowest place. So the growth seen lies below that of later
micro-batches, and the slowest stage's time on one lies above; where the two leave more than 1 % open, the plan is run
with more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....ir.schedules.kind import ScheduleKind
from ..tasks import Array
from .waves import waves_of

# Rounds of micro-batches up to which plans that are not settled are run, twice as many at a time.
LAST = 24
OPEN = 0.01
# Numbers that one run holds at a time.
_HELD = 1_500_000
# Forward, dgrad, wgrad and send seconds of every stage, as (stage, plan).
_Stages = tuple[Array, Array, Array, Array]


def extrapolated_s(
    schedule: ScheduleKind,
    times: tuple[Array, Array, Array, Array],
    num_micro_batches: Array,
    key: int,
    chunks: int,
    each: int,
) -> Array:
    """Return the seconds of a step.

    Args:
        schedule: what orders the tasks.
        times: forward, dgrad, wgrad and send seconds of each stage, as (stage, plan).
        num_micro_batches: micro-batches of each plan.
        key: their number where it is at most that of the first rounds, the same for all plans; more otherwise.
        chunks: of each stage, of all copies of the model together.
        each: micro-batches of a round.
    """
    share = schedule.copies / chunks
    form = _Form(schedule, chunks, each)
    forward, dgrad, wgrad = (a * share for a in times[:3])
    stages = (forward, dgrad, wgrad, times[3])
    if key <= schedule.filling_rounds * each:
        return np.asarray(_run(form, (key,), stages)[0])
    slowest_s = (forward + dgrad + wgrad).max(axis=0) / share
    return _carried_on(form, stages, slowest_s, num_micro_batches)


@dataclass(frozen=True, slots=True)
class _Form:
    """What plans that are run together have in common: schedule, chunks a stage, micro-batches of a round."""

    schedule: ScheduleKind
    chunks: int
    each: int


def _carried_on(form: _Form, stages: _Stages, slowest_s: Array, num_micro_batches: Array) -> Array:
    """Run plans with the micro-batches of the first rounds, and those that are not settled with more."""
    p = form.each
    found = np.zeros_like(num_micro_batches)
    rounds, left = form.schedule.filling_rounds, np.arange(len(num_micro_batches))
    while len(left):
        here, m = _some(stages, left), num_micro_batches[left]
        so_far, before = _run(form, (rounds * p, (rounds - 1) * p), here)
        growth = (so_far - before) / p
        more = m - float(rounds * p)
        open_s = more * np.maximum(slowest_s[left] - growth, 0.0)
        found[left] = so_far + more * growth + 0.5 * open_s
        rounds *= 2
        unsettled = open_s > OPEN * found[left]
        few = unsettled & (m <= rounds * p)
        for number in np.unique(m[few]):
            plans = left[few & (m == number)]
            found[plans] = _run(form, (int(number),), _some(stages, plans))[0]
        left = left[unsettled & ~few] if rounds <= LAST else left[:0]
    return found


def _some(stages: _Stages, plans: NDArray[np.intp]) -> _Stages:
    forward, dgrad, wgrad, send = stages
    return forward[:, plans], dgrad[:, plans], wgrad[:, plans], send[:, plans]


def _run(form: _Form, num_micro_batches: tuple[int, ...], stages: _Stages) -> Array:
    """Run steps of so many micro-batches, as (step, plan); as many plans at a time as stay in the cache."""
    waves = waves_of(form.schedule.name, len(stages[0]), num_micro_batches, form.chunks)
    width = max(_HELD // waves.num_units, 8)
    forward, dgrad, wgrad, send = stages
    parts = [
        waves.step_s(
            forward[:, k : k + width], dgrad[:, k : k + width], wgrad[:, k : k + width], send[:, k : k + width]
        )
        for k in range(0, forward.shape[1], width)
    ]
    return np.concatenate(parts, axis=1)
