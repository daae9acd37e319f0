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

from collections.abc import Sequence

import numpy as np

from ....ir.records import dataclass
from ....ir.schedules.kind import ScheduleKind
from ..tasks import Array
from .waves import Units, steps_s, units_of

# Steps that are run have so many times the rounds that fill the pipeline.
_OVER = 2


@dataclass(frozen=True, slots=True)
class Steps:
    """Plans whose steps have one form.

    Attributes:
        schedule: what orders the tasks.
        times: forward, dgrad, wgrad and send seconds of one chunk of each stage, as (4, stage, plan).
        num_micro_batches: micro-batches of each plan.
        num_run: micro-batches that are run; plans have as many or more.
        chunks: of each stage, of all copies of the model together.
    """

    schedule: ScheduleKind
    times: Array
    num_micro_batches: Array
    num_run: int
    chunks: int

    @property
    def waits(self) -> bool:
        """Whether some plan has more micro-batches than are run, and messages take time."""
        return bool(self.times[3].any() and np.any(self.num_micro_batches > self.num_run))

    @property
    def fewer(self) -> int:
        """Micro-batches that are run besides, where messages take time: a round less."""
        return self.num_run - self.num_run // rounds_run(self.schedule)

    def units(self, num_micro_batches: int) -> Units:
        """Return the tasks of a step of so many micro-batches."""
        return units_of(self.schedule.name, self.times.shape[1], num_micro_batches, self.chunks)


def rounds_run(schedule: ScheduleKind) -> int:
    """Return the rounds of micro-batches that are run; from there on a step grows evenly."""
    return _OVER * schedule.filling_rounds


def extrapolated_s(asked: Sequence[Steps]) -> list[Array]:
    """Return the seconds of steps, plan by plan; all are run side by side."""
    also = [one for one in asked if one.waits]
    runs = [(one, one.num_run) for one in asked] + [(one, one.fewer) for one in also]
    so_far = steps_s([(one.units(num), one.times) for one, num in runs])
    before, found = iter(so_far[len(asked) :]), list[Array]()
    for one, seconds in zip(asked, so_far[: len(asked)], strict=True):
        growth_s = (one.times[0] + one.times[1] + one.times[2]).max(axis=0) * (one.chunks / one.schedule.copies)
        if one.waits:
            # Joined tasks wait for a message each time round.
            seen_s = (seconds - next(before)) / (one.num_run - one.fewer)
            growth_s = np.where(one.times[3].any(axis=0), np.maximum(growth_s, seen_s), growth_s)
        found.append(np.asarray(seconds + (one.num_micro_batches - one.num_run) * growth_s))
    return found
