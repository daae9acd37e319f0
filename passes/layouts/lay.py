"""One call along one mesh axis as a law sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ...ir.ops import OpCall
from ...ir.placement import Placement
from ...ir.records import dataclass

Placements: TypeAlias = tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Lay:
    """Local types of a call, and how its inputs and its results lie along an axis.

    `shards` says that along some axis a rank takes its own shard of what is whole.
    """

    axis: str
    call: OpCall
    ins: Placements
    outs: Placements
    shards: bool = False

    @property
    def all(self) -> Placements:
        """Placements of inputs, then of results."""
        return (*self.ins, *self.outs)

    def tensor(self, index: int) -> str:
        """Name an input or, behind those, a result with its type and layout."""
        kind = (*self.call.inputs, *self.call.outputs)[index]
        name = f"input {index}" if index < len(self.ins) else "result"
        return f"{name} {kind} {self.all[index]}"


Law: TypeAlias = Callable[[Lay], Iterator[str]]
