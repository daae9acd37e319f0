"""Which steps the numbers of stacks were fitted to, by the records that stand beside the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...backends.catalogue import lineage
from ...backends.system import stack_names
from ..split import ALL, in_first_half

if TYPE_CHECKING:
    from ...backends.system_tree import Tree

TABLE = "training"
# Data sets that are in no fit: all their rows judge.
JUDGES_ONLY = frozenset({"korthikanti2022_table5"})


@dataclass(frozen=True, slots=True)
class StackRecord:
    """What numbers of a stack were fitted to: data sets, and `half` of their configurations or `all`."""

    data_sets: frozenset[str]
    split: str

    def saw(self, dataset: str, group: str) -> bool:
        """Whether a row was among those that were fitted."""
        return dataset in self.data_sets and (self.split == ALL or in_first_half(TABLE, group))


@dataclass(slots=True)
class StackRecords:
    """The fits behind each stack, its own and those of the stacks that it is like; each read once."""

    _known: dict[str, tuple[StackRecord, ...]] = field(default_factory=dict)

    def saw(self, stack: str, dataset: str, group: str) -> bool:
        """Whether numbers that a stack has were fitted to a row."""
        if stack not in self._known:
            self._known[stack] = records_of(stack)
        return any(record.saw(dataset, group) for record in self._known[stack])


def records_of(stack: str) -> tuple[StackRecord, ...]:
    """Return the fits behind the numbers of a stack; none where all of them were set by people."""
    return tuple(_records(file.tree.get("fit") for file in lineage(stack)))


def fitted_sets() -> frozenset[str]:
    """Return the data sets that any stack of the catalogue was fitted to."""
    return frozenset(name for stack in stack_names() for record in records_of(stack) for name in record.data_sets)


def _records(trees: Iterable[Tree]) -> Iterable[StackRecord]:
    """What is free to be fitted is one thing; that it was fitted says `fitted`."""
    for tree in trees:
        sets = tree.get("data_sets") if isinstance(tree, dict) and "fitted" in tree else None
        if isinstance(tree, dict) and isinstance(sets, list):
            yield StackRecord(frozenset(map(str, sets)), str(tree.get("split", "half")))
