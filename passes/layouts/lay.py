"""One call along one mesh axis as a law sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ...ir.ops import OpCall
from ...ir.placement import PARTIAL, REPLICATE, Partial, Placement, Shard
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

    def input(self, index: int) -> str:
        """Name an input with its type and layout."""
        return f"input {index} {self.call.inputs[index]} {self.ins[index]}"

    def output(self, index: int = 0) -> str:
        """Name a result with its type and layout."""
        return f"result {self.call.outputs[index]} {self.outs[index]}"


# Each rank of these axes has samples of its own; in which order those of all would stand, nobody sees.
SAMPLES = ("dp", "fsdp", "ep")


def alike(axis: str, have: Placement, want: Placement) -> bool:
    """Whether two layouts are the same; of samples, packed ones are those of the same rank."""
    if have == want or axis not in SAMPLES or not isinstance(have, Shard) or not isinstance(want, Shard):
        return have == want
    return have == Shard(want.dim, have.packed, want.routed)


Law: TypeAlias = Callable[[Lay], Iterator[str]]


def no_sums(lay: Lay, first: int = 0, count: int | None = None) -> Iterator[str]:
    """Complain of partial sums where the op is not linear."""
    last = len(lay.ins) if count is None else first + count
    for i, p in enumerate(lay.ins[first:last], first):
        if isinstance(p, Partial):
            yield f"{lay.call.op} is not linear and reads a partial sum: {lay.input(i)}; wanted R or S"


def input_is(lay: Lay, index: int, have: Placement, want: Placement) -> Iterator[str]:
    """Complain where an input lies otherwise than it must."""
    if not alike(lay.axis, have, want):
        yield f"{lay.input(index)} lies {have}; wanted {want}"


def result_is(lay: Lay, index: int, have: Placement, want: Placement) -> Iterator[str]:
    """Complain where a result lies otherwise than it must."""
    if not alike(lay.axis, have, want):
        yield f"{lay.output(index)} lies {have}; wanted {want}"


__all__ = [
    "PARTIAL", "REPLICATE", "SAMPLES", "Law", "Lay", "Partial", "Placement", "Placements", "Shard", "alike",
    "input_is", "no_sums", "result_is",
]  # fmt: skip
