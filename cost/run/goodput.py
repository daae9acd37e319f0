"""Checkpoints and failures into the share of the time of a run that makes progress, and the interval that is best.

Failures come at random at a constant rate 1/M (a Poisson process), during computation, checkpoints and restarts alike.
After each one the job restarts in R and computes again what no checkpoint holds. Symbols, as in Daly's paper: M mean
time between failures of the job, R restart, tau work between two checkpoints, delta what a checkpoint adds to the run.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974; J. T. Daly, A
higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006.
"""

from __future__ import annotations

import math

from ...ir.records import dataclass

# Newton's method below at least halves its distance to a small solution in each step.
_STEPS = 100


def best_interval_s(stall_s: float, mtbf_s: float) -> float:
    """Return the interval of the largest goodput, which Young's sqrt(2 delta M) approximates.

    It solves exp((tau + delta) / M) (1 - tau / M) = 1. With tau / M = 1 - exp(-t) that is t - 1 + exp(-t) = delta / M,
    whose left side is convex: Newton's method comes down to the solution from t = 1 + delta / M and never passes it.
    Infinite without failures, zero where a checkpoint costs nothing.

    >>> [round(best_interval_s(300, hours * 3600) / 60, 1) for hours in (24, 6, 0.25)]
    [116.7, 56.7, 9.2]
    """
    if stall_s <= 0.0 or math.isinf(mtbf_s):
        return 0.0 if stall_s <= 0.0 else math.inf
    t = 1.0 + stall_s / mtbf_s
    for _ in range(_STEPS):
        slope = -math.expm1(-t)
        t -= (t - slope - stall_s / mtbf_s) / slope
    return -mtbf_s * math.expm1(-t)


def expected_s(work_s: float, mtbf_s: float, restart_s: float) -> float:
    """Return the expected time until so much work is done in one go: M exp(R / M) (exp(w / M) - 1), Daly's section 3.

    Without failures it is the work itself.

    >>> expected_s(3600, math.inf, 600), round(expected_s(3600, 3600, 0) / 3600, 3)
    (3600, 1.718)
    """
    if math.isinf(mtbf_s):
        return work_s
    try:
        return mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(work_s / mtbf_s)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """What the time of a run goes to; the four add up to 1.

    Attributes:
        steps: steps that count: the goodput.
        checkpoints: steps that wait for a checkpoint.
        restarts: from a failure to the first step behind it.
        lost: steps that are made again, and checkpoints that a failure cut short.
    """

    steps: float
    checkpoints: float
    restarts: float
    lost: float


def shares(every_s: float, stall_s: float, mtbf_s: float, restart_s: float = 0.0, late_s: float = 0.0) -> TimeShares:
    """Return what the time goes to with a checkpoint behind every `every_s` of work.

    goodput = tau / (M exp((R + late) / M) (exp((tau + delta) / M) - 1)); the job is restarting for 1 - exp(-R / M) of
    the time, the chance that a failure came within the last R.

    Args:
        every_s: work between two checkpoints.
        stall_s: what a checkpoint adds to the run.
        mtbf_s: of the job; infinite without failures.
        restart_s: from a failure to the first step behind it.
        late_s: work done while a checkpoint is written beside it: a failure loses that much more.

    >>> shares(3600, 0, math.inf).steps, round(shares(900, 100, math.inf).checkpoints, 3)
    (1.0, 0.1)
    """
    steps = every_s / expected_s(every_s + stall_s, mtbf_s, restart_s + late_s)
    checkpoints = steps * stall_s / every_s
    restarts = -math.expm1(-restart_s / mtbf_s)
    lost = 0.0 if math.isinf(mtbf_s) else max(0.0, 1.0 - steps - checkpoints - restarts)
    return TimeShares(steps=steps, checkpoints=checkpoints, restarts=restarts, lost=lost)
