"""What may lie how along one mesh axis: entries of an op's truth table, made from labels of its dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from ...ir.ops import OpCall
from ...ir.placement import PARTIAL, REPLICATE, Placement, Shard
from ...ir.records import dataclass

Label: TypeAlias = str | None
Labels: TypeAlias = Sequence[Label]


@dataclass(frozen=True, slots=True)
class PlacementEntry:
    """Placements of inputs and those of the outputs that follow: on each rank the op itself makes these of those.

    `plain` says that shards are blocks, not packed.
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    plain: bool = False

    def fits(self, inputs: Sequence[Placement], outputs: Sequence[Placement]) -> bool:
        """Whether given placements are these; shards of the same dim are packed alike, all of them or none."""
        wanted, given = (*self.inputs, *self.outputs), (*inputs, *outputs)
        if len(wanted) != len(given) or not all(_alike(w, g) for w, g in zip(wanted, given, strict=True)):
            return False
        flags = [g.packed for g in given if isinstance(g, Shard)]
        exact = [w.packed for w in wanted if isinstance(w, Shard)]
        if any(exact):
            return flags == exact
        return not any(flags) if self.plain else len(set(flags)) < 2

    def __str__(self) -> str:
        """Print as `S(0), R -> S(0)`."""
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"


def _alike(wanted: Placement, given: Placement) -> bool:
    if isinstance(wanted, Shard) and isinstance(given, Shard):
        return wanted.dim == given.dim and wanted.routed == given.routed
    return wanted == given


# Each rank of these axes has samples of its own.
SAMPLES = ("dp", "fsdp", "ep")
Law: TypeAlias = Callable[[OpCall, str], Iterator[PlacementEntry]]


@dataclass(frozen=True, slots=True)
class IndexMap:
    """An op as an index map: which dims of its tensors are the same, and what it sums over.

    A label that two tensors share is one dim. A label that an output lacks is summed over in it, when the output is
    among `sums[label]`; it does not depend on that dim, when it is among `same[label]`; otherwise nothing may be
    sharded there. `added` are inputs that are added to the result (a bias): where the result is a partial sum, so are
    they. `linear` are groups of inputs in which the op is linear, all of a group together; the outputs that are in a
    group's second part do not depend on it.
    """

    inputs: Sequence[Labels]
    outputs: Sequence[Labels]
    sums: Mapping[str, Sequence[int]] = field(default_factory=dict)
    same: Mapping[str, Sequence[int]] = field(default_factory=dict)
    added: Sequence[int] = ()
    linear: Sequence[tuple[Sequence[int], Sequence[int]]] = ()

    def entries(self) -> Iterator[PlacementEntry]:
        """Yield all entries: everything whole, each label sharded, each linear group partial."""
        num_in, num_out = len(self.inputs), len(self.outputs)
        yield PlacementEntry((REPLICATE,) * num_in, (REPLICATE,) * num_out)
        for label in dict.fromkeys(c for labels in (*self.inputs, *self.outputs) for c in labels if c is not None):
            made = [self._made(label, i) for i in range(num_out)]
            if all(m is not None for m in made):
                given = tuple(self._given(label, i) for i in range(num_in))
                yield PlacementEntry(given, tuple(m for m in made if m is not None))
        for group, untouched in self.linear:
            given = tuple(PARTIAL if i in group else REPLICATE for i in range(num_in))
            yield PlacementEntry(given, tuple(REPLICATE if i in untouched else PARTIAL for i in range(num_out)))

    def _given(self, label: str, index: int) -> Placement:
        if label in self.inputs[index]:
            return Shard(list(self.inputs[index]).index(label))
        return PARTIAL if index in self.added and label in self.sums else REPLICATE

    def _made(self, label: str, index: int) -> Placement | None:
        if label in self.outputs[index]:
            return Shard(list(self.outputs[index]).index(label))
        if index in self.sums.get(label, ()):
            return PARTIAL
        return REPLICATE if index in self.same.get(label, ()) else None
