"""What a graph says of its sharding whatever the plan: shared by the many trials of a search for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from ...ir.graph import Graph
from ...ir.kept import Itself
from ...ir.placement import MeshAxis
from ...ir.records import dataclass
from .ask import Answer
from .builder import LocalType
from .cuts import Cuts, cuts_of
from .own_batch import OwnBatch, localised


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """A graph in the sizes of a replica, and what runs have in common.

    Attributes:
        graph: the graph in the sizes of a replica.
        own: what is a replica's own there.
        cuts: how dims may be cut, by region.
        answers: of rules, by options, region, node, axis, and how the inputs lie, here and at the forward node.
        types: of ranks' parts by region, as a `RegionBuilder` knows them under the same options.
    """

    graph: Graph
    own: OwnBatch
    cuts: Mapping[str, Cuts]
    answers: dict[tuple[object, ...], Answer] = field(default_factory=dict, compare=False, repr=False)
    types: dict[str, dict[tuple[object, ...], LocalType]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, graph: Graph, axes: tuple[MeshAxis, ...]) -> GraphFacts:
        """Look at a traced graph whose batch lies over some axes."""
        return cls(*looked_at(Itself(graph), axes))


# Families of plans begin with one graph: a search lowers it some thirty times. An equal one may mean something else.
@lru_cache(maxsize=4)
def looked_at(
    graph: Itself[Graph], axes: tuple[MeshAxis, ...]
) -> tuple[Graph, OwnBatch, Mapping[str, Cuts], dict[tuple[object, ...], Answer]]:
    """Return what `GraphFacts` has of a graph, and no answers yet."""
    local = localised(graph.it, axes)
    return local, OwnBatch.of(local), cuts_of(local), {}
