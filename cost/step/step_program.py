"""A lowered graph compiled for the roll-up: what may hide what, which regions are layers, how much is issued again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ...backends.pricing.program import CompiledProgram, PricedEntry
from ...ir.graph import Graph, Phase
from ...ir.layers import is_mtp_layer, layer_row
from ...ir.ops import Trait, has
from ...ir.plan import Family
from ...ir.records import dataclass
from .beside import HiddenMessages, Labels, axis_of, phase_of
from .overlap import Pair, pairs_of
from .split_backward import weight_gradients

# The part of context parallelism that passes blocks on; in the breakdown it is `comm.cp`.
RING = "comm.ring"
# The phase of what only makes gradients of weights, where the schedule runs it apart from the backward phase.
WEIGHTS = "weights"
Label = tuple[str, str, str]
# Region and key of nodes.
Nodes: TypeAlias = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Bookings:
    """How the nodes of a step are booked, with the backward phase in one or in two.

    In two, each part has messages and computation of its own: nothing of one runs beside the other, so that both get
    shorter with whatever gets faster in them, and neither longer.

    Attributes:
        label: region, phase and part of a node.
        beside: messages that something may hide, and what may hide them.
        beside_pairs: the same without the products that hide messages of `pairs`.
        pairs: messages that the products next to them hide when both are taken apart, each with its phase.
    """

    label: Callable[[PricedEntry], Label | None]
    beside: Labels
    beside_pairs: Labels
    pairs: tuple[tuple[Pair, str], ...]

    @classmethod
    def of(cls, graph: Graph, beside: HiddenMessages, pairs: Sequence[Pair], weights: Nodes = frozenset()) -> Bookings:
        """Book nodes; those of `weights` in a phase of their own."""

        def phase(entry: PricedEntry) -> str:
            return WEIGHTS if (entry.region, entry.key) in weights else phase_of(entry)

        def label(entry: PricedEntry) -> Label | None:
            found = label_of(entry)
            return (found[0], WEIGHTS, found[2]) if found and (entry.region, entry.key) in weights else found

        late = {(p.region, p.message): (p.region, p.message) in weights for p in pairs}
        apart = [
            replace(p, products=tuple(k for k in p.products if ((p.region, k) in weights) is late[p.region, p.message]))
            for p in pairs
        ]
        return cls(
            label,
            beside.labels(phase),
            beside.labels(phase, frozenset((p.region, k) for p in apart for k in p.products)),
            tuple((p, _phase(graph, p, weights)) for p in apart if p.products),
        )


@dataclass(frozen=True, slots=True)
class StepProgram:
    """What a roll-up needs to know of a graph beyond the times of its nodes.

    Attributes:
        layers: regions that are layers of the model.
        issued_again: kernels that recomputation issues over those of the forward phase, by region.
        whole: how nodes are booked where the backward phase is one.
        split: the same where gradients of weights are apart.
    """

    layers: frozenset[str]
    issued_again: Mapping[str, float]
    whole: Bookings
    split: Bookings

    @classmethod
    def of(cls, program: CompiledProgram) -> StepProgram:
        """Compile it."""
        graph = program.graph
        issued = Counter((e.region, e.phase) for e in program.entries)
        again = {r.name: issued[r.name, Phase.RECOMPUTE] / max(issued[r.name, Phase.FORWARD], 1) for r in graph.regions}
        beside, pairs = HiddenMessages.of(graph), pairs_of(graph)
        return cls(
            layer_row(graph).inner | frozenset(r.name for r in graph.regions if is_mtp_layer(r.name)),
            again,
            Bookings.of(graph, beside, pairs),
            Bookings.of(graph, beside, pairs, weight_gradients(graph)),
        )

    def booked(self, family: Family) -> Bookings:
        """Return how the nodes of a family's plans are booked."""
        return self.split if family.pipeline.split_backward else self.whole


def _phase(graph: Graph, pair: Pair, weights: Nodes) -> str:
    if (pair.region, pair.message) in weights:
        return WEIGHTS
    phase = graph.region(pair.region).producer[pair.message].phase
    return "forward" if phase is Phase.FORWARD else "backward"


def label_of(entry: PricedEntry) -> Label | None:
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
