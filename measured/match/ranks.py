"""Several ranks of one run: how long each computes, communicates and waits for the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.records import dataclass
from ..traces.kinds import KernelKind
from ..traces.timeline import spent
from ..traces.trace import RankTrace


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank, in seconds of a step.

    `waits_s` is what its collectives take longer than on the rank that comes last to each; None where the traces do
    not hold the same collectives.
    """

    path: str
    step_s: float
    compute_s: float
    exposed_comm_s: float
    idle_s: float
    waits_s: float | None


def rank_rows(traces: Sequence[RankTrace], steps: int, num_steps: int | None = None) -> Sequence[RankRow]:
    """Return the ranks of a run in the order given, of as many steps each.

    `num_steps` is how many steps the user says that there are: then all of a trace counts, whatever it marks.
    """
    waits = _waits(traces)
    rows = []
    for trace, wait in zip(traces, waits, strict=True):
        time = spent(trace, trace.counted(num_steps))
        step_us = time.total_us / steps
        if trace.steps and num_steps is None:
            step_us = float(np.median(trace.step_times_us))
        rows.append(
            RankRow(
                trace.path,
                step_us * 1e-6,
                time.compute_us * 1e-6 / steps,
                time.exposed_comm_us * 1e-6 / steps,
                time.idle_us * 1e-6 / steps,
                None if wait is None else wait * 1e-6 / steps,
            )
        )
    return rows


def _waits(traces: Sequence[RankTrace]) -> Sequence[float | None]:
    """Microseconds that each rank is in collectives before the last rank joins: they end together."""
    taken, kinds = [], set()
    for trace in traces:
        rows = np.flatnonzero(trace.is_kind(KernelKind.COLLECTIVE) & trace.ran.known)
        taken.append(trace.ran.time_us[rows])
        kinds.add(tuple(trace.message(row).kind for row in rows.tolist()))
    if len(traces) < 2 or len(kinds) != 1 or not len(taken[0]):
        return [None] * len(traces)
    times = np.stack(taken)
    return [float(wait) for wait in (times - times.min(axis=0)).sum(axis=1)]
