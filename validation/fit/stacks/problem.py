"""Numbers of stacks as a problem over steps: where each stands in the stack of each table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import movable, moved, priced_alike
from ....backends.pricing.timing import Timing, annotate
from ....cost.step.policy import StepPolicy
from ....cost.step.rollup import roll_up
from ....cost.step.stages import Staging
from ....ir.records import dataclass
from ....ir.sizes.points import Points
from ...training.judge import PreparedCases
from ..problem import Array, Problem
from .profiles import Profiles, ProfileSlot, Taken


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


class StackProblem(Problem):
    """Steps in tables, the numbers that move, and where each stands in the stack of each table."""

    def __init__(self, pricers: Sequence[StackPricer], profiles: Profiles) -> None:
        self.pricers = tuple(pricers)
        self.stacks = tuple(profiles.of(pricer.table.cases[0]) for pricer in pricers)
        found = {slot for one in self.stacks for slot in one.slots.values()}
        # Those that need no node priced again stand first, so that what was priced serves all of them.
        self.slots = tuple(sorted(found, key=lambda slot: (not movable(slot.path).rolled, slot.profile, slot.path)))
        places = {slot: place for place, slot in enumerate(self.slots)}
        super().__init__(
            [movable(slot.path) for slot in self.slots],
            [movable(slot.path).of(profiles.start(slot)) for slot in self.slots],
            [frozenset(places[slot] for slot in one.slots.values()) for one in self.stacks],
        )

    def values(self, numbers: Array) -> Mapping[ProfileSlot, float]:
        """Return numbers by their slots."""
        return dict(zip(self.slots, numbers.tolist(), strict=True))

    def log_errors(self, part: int, numbers: Array) -> Array:
        """Return log(predicted / measured) of the steps of a table."""
        return self.pricers[part].log_errors(with_values(self.stacks[part], self.values(numbers)))


def with_values(taken: Taken, values: Mapping[ProfileSlot, float]) -> StackConstants:
    """Return a stack with the numbers of a fit where it takes them."""
    return moved(taken.plain, {path: values[slot] for path, slot in taken.slots.items() if slot in values})
