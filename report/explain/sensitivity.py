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
from ...backends.machine.system_table import num_machines, stacked
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
    """Step times, systems x plans: those that differ in numbers of chip, host and network are a table of machines.

    Others of one policy are rolled up together, as plans of one table. Backends of the user see plain systems alone.
    """
    at, bindings = table.system, table.lowered.bindings
    alike = [k for k, one in enumerate(systems) if one.kernels is at.kernels and one.stack is at.stack]
    alike = [] if num_machines(at) or not bindings.are_built_in or any(v.edges for v in at.levels) else alike
    policies = {k: StepPolicy.of(one) for k, one in enumerate(systems) if k not in alike}
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        found = np.empty((len(systems), len(table.plans)))
        if alike:
            machines = stacked([systems[k] for k in alike for _ in range(len(table.plans))])
            plans = _repeated(table.plans, len(alike))
            timing = price(bindings.anew(machines), Points(plans))
            found[alike] = _rolled_s(table, StepPolicy.of(machines), plans, timing).reshape(len(alike), -1)
        times = {k: price(bindings.anew(systems[k]), points) for k in policies}
        for policy in dict.fromkeys(policies.values()):
            rows = [k for k, other in policies.items() if other == policy]
            plans = _repeated(table.plans, len(rows))
            timing = _beside([times[k] for k in rows])
            found[rows] = _rolled_s(table, policy, plans, timing).reshape(len(rows), -1)
    return found


def _rolled_s(table: Estimates, policy: StepPolicy, plans: PlanTable, timing: Timing) -> Array:
    return step_of(table.lowered, timing, policy, plans, table.lowered.stages.evaluate(plans, Points(plans))).time_s


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
