"""What a graph says of its sharding whatever the plan: shared by the many trials of a search for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ...ir.graph import Graph
from ...ir.records import dataclass
from .ask import Answer
from .builder import LocalType
from .cuts import Cuts, cuts_of
from .own_batch import OwnBatch, localised


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """A graph in the sizes of a replica, and what runs with the same options have in common.

    Attributes:
        graph: the graph in the sizes of a replica.
        own: what is a replica's own there.
        cuts: how dims may be cut, by region.
        answers: of rules, by region, node, axis, and how the inputs lie, here and at the forward node.
        types: of ranks' parts by region, as a `RegionBuilder` knows them.
    """

    graph: Graph
    own: OwnBatch
    cuts: Mapping[str, Cuts]
    answers: dict[tuple[object, ...], Answer] = field(default_factory=dict, compare=False, repr=False)

    types: dict[str, dict[tuple[object, ...], LocalType]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, graph: Graph, axes: tuple[str, ...]) -> GraphFacts:
        """Look at a traced graph whose batch lies over some axes."""
        local = localised(graph, axes)
        return cls(local, OwnBatch.of(local), cuts_of(local))
