"""Numbers of stacks as a problem over steps: where each stands in the stack of each table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import movable, moved
from ..problem import Array, Problem
from .pricer import StackPricer
from .profiles import Profiles, ProfileSlot, Taken


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
