"""How a step's time follows each number of the machine: elasticities, d ln(step time) / d ln(number).

Of the vectorised model, by central differences of 0.1 %. Each number moves alone, as `--set` moves it: a faster clock
leaves the peaks of the data sheet as they are. Of what calibration and stack call times, those of kernels, of
collectives and of the host move together, and what a library adds to each step of a collective goes with the latency of
the level. The elasticities of all times less those of all rates add up to one: twice as fast in everything is twice as
fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...backends.pricing.timing import PricedGroup, Timing, price
from ...cost.step.policy import StepPolicy
from ...driver.estimate import Estimate, Estimates, step_of
from ...ir.plan import PlanTable
from ...ir.sizes.points import Points
from .parameters import parameters

Array: TypeAlias = NDArray[np.float64]
# Half of a difference, in ln(number): far above rounding, and an error of a millionth in plain proportions.
HALF = 1e-3


def elasticities(table: Estimates) -> Mapping[str, Array]:
    """Return d ln(step time) / d ln(number) by the number's path, plan by plan; negative where more is faster."""
    points = Points(table.plans)
    found = parameters(table.system, table.timing)
    systems = [p.scaled(table.system, math.exp(h)) for p in found for h in (HALF, -HALF)]
    logs = np.log(_steps_s(table, systems, points))
    slopes = (logs[0::2] - logs[1::2]) / (2.0 * HALF)
    return {p.name: slope for p, slope in zip(found, slopes, strict=True)}


def sensitivity(answer: Estimate) -> Mapping[str, float]:
    """Return the elasticities of one plan, the greatest first: at -0.4, 10 % more makes the step about 4 % shorter."""
    found = {name: float(values[0]) for name, values in elasticities(answer.table).items()}
    return dict(sorted(found.items(), key=lambda kv: (-abs(kv[1]), kv[0])))


def _steps_s(table: Estimates, systems: Sequence[System], points: Points) -> Array:
    """Step times, systems x plans: those of one policy are rolled up together, as plans of one table."""
    policies = [StepPolicy.of(system) for system in systems]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        times = [price(table.lowered.bindings.anew(system), points) for system in systems]
        found = np.empty((len(systems), len(table.plans)))
        for policy in dict.fromkeys(policies):
            rows = [k for k, other in enumerate(policies) if other == policy]
            found[rows] = _together_s(table, policy, [times[k] for k in rows])
    return found


def _together_s(table: Estimates, policy: StepPolicy, times: Sequence[Timing]) -> Array:
    num = len(times)
    plans = _repeated(table.plans, num)
    staging = table.lowered.stages.evaluate(plans, Points(plans))
    step = step_of(table.lowered, _beside(times), policy, plans, staging)
    return step.time_s.reshape(num, len(table.plans))


def _beside(times: Sequence[Timing]) -> Timing:
    """Times of one table of plans on several systems as those of one longer table, with their points side by side."""
    first, num = times[0], len(times)
    wide = {id(p.point): _points_of(p, num) for p in first.priced}
    priced = (
        replace(
            alike[0], distinct_s=np.concatenate([p.distinct_s for p in alike], axis=1), point=wide[id(alike[0].point)]
        )
        for alike in zip(*(t.priced for t in times), strict=True)
    )
    return Timing(first.program, tuple(priced), first.num_plans * num, first.tallies)


def _points_of(priced: PricedGroup, num: int) -> NDArray[np.intp]:
    width = priced.distinct_s.shape[1]
    return np.concatenate([priced.point + k * width for k in range(num)])


def _repeated(plans: PlanTable, num: int) -> PlanTable:
    columns = {f.name: getattr(plans, f.name) for f in fields(plans)}
    tiled = {k: np.tile(v, num) for k, v in columns.items() if isinstance(v, np.ndarray)}
    return replace(plans, **tiled)  # type: ignore[arg-type]
