"""How a step's time follows each number of the machine: elasticities, d ln(step time) / d ln(number).

Of the vectorised model, by central differences of 0.1 %; nodes that a number cannot change are not priced again. Each
number moves alone, as `--set` moves it: a faster clock leaves the peaks of the data sheet as they are. Of what
calibration and stack call times, those of kernels, of collectives and of the host move together, and what a library
adds to each step of a collective goes with the latency of the level. The elasticities of all times less those of all
rates add up to one: twice as fast in everything is twice as fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backends.system import System
from ..backends.timing import annotate
from ..driver import Estimate, Estimates, step_of
from ..ir.points import Points
from .parameters import Parameter, parameters

Array: TypeAlias = NDArray[np.float64]
# Half of a difference, in ln(number): far above rounding, and an error of a millionth in plain proportions.
HALF = 1e-3


def elasticities(table: Estimates) -> Mapping[str, Array]:
    """Return d ln(step time) / d ln(number) by the number's path, plan by plan; negative where more is faster."""
    points = Points(table.plans)
    return {p.name: _elasticity(table, p, points) for p in parameters(table.system, table.timing)}


def sensitivity(answer: Estimate) -> Mapping[str, float]:
    """Return the elasticities of one plan, the greatest first: at -0.4, 10 % more makes the step about 4 % shorter."""
    found = {name: float(values[0]) for name, values in elasticities(answer.table).items()}
    return dict(sorted(found.items(), key=lambda kv: (-abs(kv[1]), kv[0])))


def _elasticity(table: Estimates, parameter: Parameter, points: Points) -> Array:
    changes = [parameter.prices(p) for p in table.timing.priced]
    systems = [parameter.scaled(table.system, math.exp(h)) for h in (HALF, -HALF)]
    more, less = (_step_s(table, system, changes, points) for system in systems)
    return np.asarray((np.log(more) - np.log(less)) / (2.0 * HALF))


def _step_s(table: Estimates, system: System, changes: Sequence[bool], points: Points) -> Array:
    """The step on another system; groups that it does not change keep their times."""
    timing, plans = table.timing, table.plans
    kept = tuple(p for p, new in zip(timing.priced, changes, strict=True) if not new)
    groups = [p.group for p, new in zip(timing.priced, changes, strict=True) if new]
    compute, talks = (tuple(g for g in groups if bool(g.collective) is talk) for talk in (False, True))
    program = replace(timing.program, compute=compute, communication=talks)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        priced = annotate(program, system, plans, points=points).priced
        return step_of(table.lowered, replace(timing, priced=(*kept, *priced)), system, plans, table.staging).time_s
