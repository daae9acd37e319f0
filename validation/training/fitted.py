"""Which steps the numbers of stacks were fitted to: what a stack's record of its fit says of a row."""

from __future__ import annotations

from dataclasses import field

from ...backends.machine.software.stack_record import FitRecord, fit_records
from ...ir.records import dataclass
from ..rows.split import ALL, in_first_half

TABLE = "training"


@dataclass(slots=True)
class StackRecords:
    """The fits behind each stack, its own and those of the stacks that it is like; each read once."""

    _known: dict[str, tuple[FitRecord, ...]] = field(default_factory=dict)

    def saw(self, stack: str, dataset: str, group: str) -> bool:
        """Whether numbers that a stack has were fitted to a row."""
        if stack not in self._known:
            self._known[stack] = fit_records(stack)
        seen = (
            dataset in fit.data_sets and (fit.split == ALL or in_first_half(TABLE, group)) for fit in self._known[stack]
        )
        return any(seen)
