"""How the time of a device was spent: computing, communicating with nothing beside it, copying, idle."""

from __future__ import annotations

import numpy as np

from ...ir.records import dataclass
from .kinds import KernelKind
from .ran import Flags, Floats
from .trace import RankTrace


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Microseconds of one rank from its first kernel to the end of its last; the first four parts add up.

    What is exposed runs while nothing computes; copies also while nothing communicates. `comm_us` and `copy_us` are
    all of theirs, hidden or not.
    """

    compute_us: float
    exposed_comm_us: float
    exposed_copy_us: float
    idle_us: float
    comm_us: float
    copy_us: float

    @property
    def total_us(self) -> float:
        """The whole."""
        return self.compute_us + self.exposed_comm_us + self.exposed_copy_us + self.idle_us


def spent(trace: RankTrace, chosen: Flags | None = None) -> TimeSpent:
    """Return how the time of a rank was spent, of kernels whose launch is in the trace where any is.

    `chosen` are the kernels to look at, all by default.
    """
    ran = trace.ran
    counted = ran.known if ran.known.any() else np.ones(len(ran), dtype=np.bool_)
    counted = counted if chosen is None else counted & chosen
    if not counted.any():
        return TimeSpent(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    comm = trace.is_kind(KernelKind.COLLECTIVE) & counted
    clears = np.array([name.startswith("\nMemset") for name in trace.names])[ran.name]
    copies = trace.is_kind(KernelKind.COPY) & counted & ~clears
    compute = counted & ~comm & ~copies

    def lasting(rows: Flags) -> float:
        return covered(ran.start_us[rows], ran.time_us[rows])

    computing, talking, busy = lasting(compute), lasting(compute | comm), lasting(counted)
    whole = float((ran.start_us + ran.time_us)[counted].max() - ran.start_us[counted].min())
    return TimeSpent(computing, talking - computing, busy - talking, whole - busy, lasting(comm), lasting(copies))


def covered(start_us: Floats, time_us: Floats) -> float:
    """Return the microseconds in which at least one of them runs.

    >>> covered(np.array([0.0, 2.0, 6.0]), np.array([3.0, 2.0, 1.0]))
    5.0
    """
    if not len(start_us):
        return 0.0
    order = np.argsort(start_us, kind="stable")
    start, end = start_us[order], (start_us + time_us)[order]
    until = np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1]))
    return float(np.maximum(end - np.maximum(start, until), 0.0).sum())
