"""Steps of one prepared table under one stack after another, as a fit needs them: memory and metrics are left out."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import priced_alike
from ....backends.pricing.timing import Timing, annotate
from ....cost.step.policy import StepPolicy
from ....cost.step.rollup import roll_up
from ....cost.step.stages import Staging
from ....ir.records import dataclass
from ....ir.sizes.points import Points
from ...training.judge import PreparedCases

Array = NDArray[np.float64]


@dataclass(slots=True)
class StackPricer:
    """A table of steps; nodes are priced again only where a stack prices them otherwise than the one before."""

    table: PreparedCases
    measured_s: Array
    _points: Points
    _staging: Staging
    _priced: tuple[StackConstants, Timing] | None = field(default=None)

    @classmethod
    def of(cls, table: PreparedCases) -> StackPricer:
        """Lay out the stages, which no stack changes."""
        points = Points(table.plans)
        measured = np.asarray([case.measured_s for case in table.cases], dtype=np.float64)
        return cls(table, measured, points, table.lowered.stages.evaluate(table.plans, points))

    def log_errors(self, stack: StackConstants) -> Array:
        """Return log(predicted / measured) of its steps."""
        return np.asarray(np.log(self.seconds(stack) / self.measured_s))

    def seconds(self, stack: StackConstants) -> Array:
        """Return what its steps take with a stack, on the network that they ran on."""
        system = replace(self.table.system, stack=replace(stack, network=self.table.system.stack.network))
        lowered, plans = self.table.lowered, self.table.plans
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            key = priced_alike(system.stack)
            if self._priced is None or self._priced[0] != key:
                self._priced = key, annotate(lowered.program, system, plans, points=self._points)
            return roll_up(self._priced[1], plans, self._staging, StepPolicy.of(system), lowered.step).time_s
