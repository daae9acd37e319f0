"""A table of plans before anything is timed: its distinct points, its stages and its memory, worked out once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...ir.plan import PlanTable
from ...ir.records import dataclass
from ...ir.sizes.points import Points
from ..memory.peak import Holding, MemoryProgram
from .stages import StageProgram, Staging

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class PreparedPlans:
    """Plans with what does not need times.

    Attributes:
        plans: the plans.
        points: their distinct points.
        staging: their stages.
        memory_bytes: of the fullest device by part, plan by plan.
    """

    plans: PlanTable
    points: Points
    staging: Staging
    memory_bytes: Mapping[str, Array]

    @classmethod
    def of(
        cls, stages: StageProgram, memory: MemoryProgram, system: System, plans: PlanTable, points: Points | None = None
    ) -> PreparedPlans:
        """Lay plans on stages and add up their memory; PlanError when one has more chunks than layers."""
        met = points or Points(plans)
        staging = stages.evaluate(plans, met)
        return cls(plans, met, staging, memory_of(memory, system, met, plans, staging))

    @property
    def peak_mem_bytes(self) -> Array:
        """The sum of the parts."""
        first, *others = self.memory_bytes.values()
        return np.asarray(sum(others, first))

    def part(self, plans: Index) -> PreparedPlans:
        """Return some of the plans: nothing is worked out again."""
        parts = {name: num_bytes[plans] for name, num_bytes in self.memory_bytes.items()}
        some = self.plans.part(plans)
        return PreparedPlans(some, self.points.part(some, plans), self.staging.part(plans), parts)


def memory_of(
    memory: MemoryProgram, system: System, points: Points, plans: PlanTable, staging: Staging
) -> Mapping[str, Array]:
    """Return the bytes of the fullest device by part, with what the system's software holds on top."""
    stack = system.stack
    reserve = stack.memory_reserve_bytes + stack.workspace_bytes
    holding = Holding(stack.memory_packing, stack.gradient_copy)
    return memory.evaluate(points, reserve, plans, staging, holding)
