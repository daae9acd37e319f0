"""A lowered graph compiled for the roll-up: what may hide what, which regions are layers, how much is issued again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...backends.pricing.program import Entry, Program
from ...ir.graph import Graph, Phase
from ...ir.layers import layer_row
from ...ir.ops import Trait, has
from .beside import Beside, axis_of, phase_of
from .overlap import Pair, pairs_of
from .split_backward import weight_gradients

# The part of context parallelism that passes blocks on; in the breakdown it is `comm.cp`.
RING = "comm.ring"
Label = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class StepProgram:
    """What a roll-up needs to know of a graph beyond the times of its nodes.

    Attributes:
        beside: messages that something may hide, and what may hide them.
        pairs: messages that the products next to them hide when both are taken apart.
        layers: regions that are layers of the model.
        issued_again: kernels that recomputation issues over those of the forward phase, by region.
        wgrad: the region of computation that only makes gradients of weights, as a label.
    """

    beside: Beside
    pairs: tuple[Pair, ...]
    layers: frozenset[str]
    issued_again: Mapping[str, float]
    wgrad: Callable[[Entry], str | None]

    @classmethod
    def of(cls, program: Program) -> StepProgram:
        """Compile it."""
        graph = program.graph
        issued = Counter((e.region, e.phase) for e in program.entries)
        again = {r.name: issued[r.name, Phase.RECOMPUTE] / max(issued[r.name, Phase.FORWARD], 1) for r in graph.regions}
        return cls(
            Beside.of(graph),
            tuple(pairs_of(graph)),
            layer_row(graph).inner,
            again,
            _label_of_wgrad(graph),
        )


def _label_of_wgrad(graph: Graph) -> Callable[[Entry], str | None]:
    nodes = weight_gradients(graph)

    def label(entry: Entry) -> str | None:
        return entry.region if entry.message is None and (entry.region, entry.key) in nodes else None

    return label


def label_of(entry: Entry) -> Label | None:
    """Region, phase and part of a node; None for a receive, which runs while the send does that it waits for."""
    if has(entry, Trait.RECEIVES):
        return None
    copies = has(entry, Trait.TO_HOST, Trait.FROM_HOST)
    if copies:
        part = entry.op
    else:
        axis = "ring" if has(entry, Trait.RING) else axis_of(entry)
        part = f"comm.{axis}" if entry.message is not None else f"compute.{entry.kind}"
    if entry.phase is Phase.OPTIMIZER:
        return entry.region, "optimizer", part if copies or entry.message is not None else "optimizer"
    if entry.phase in (Phase.PREPARE, Phase.REDUCE):
        return entry.region, str(entry.phase), part
    return entry.region, phase_of(entry), part
