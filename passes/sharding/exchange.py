"""How rows travel between expert-parallel ranks: over which wire, to how many nodes, how unevenly."""

from __future__ import annotations

from ...ir.graph import Graph, Region
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import AxisGroup, Placement, Shard
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ..experts.popularity import busiest_of


@dataclass(frozen=True, slots=True)
class ExchangeOptions:
    """The options of dispatch and combine in one region.

    `wire` is the type of what goes to the experts, rows as well as their gradients; what comes back keeps its own
    (DeepSeek-V3, arXiv 2412.19437, section 3.3). `routing_nodes` is the most nodes a token is sent to, 0 for no limit.
    `imbalance` is the rows of the busiest rank over the mean, 1 where all have as many.
    """

    wire: str = ""
    routing_nodes: int = 0
    imbalance: Dim = 1
    top_k: Dim = 1

    @property
    def across(self) -> float:
        """Share of the rows that leave their node: M nodes of k goals, both ways (the same paper, section 3.2)."""
        if not self.routing_nodes or not isinstance(self.top_k, int):
            return 1.0
        return min(1.0, self.routing_nodes / self.top_k)

    def attrs(self, axes: AxisGroup, dim: int, why: str, want: Placement) -> CollectiveAttrs:
        """Return the attributes of an all-to-all that brings rows to their experts, or back."""
        wire = self.wire if is_routed(want) else ""
        return CollectiveAttrs(axes, dim, why, wire, self.across)


def is_routed(placement: Placement) -> bool:
    """Whether rows lie with their experts."""
    return isinstance(placement, Shard) and placement.routed


def routing_regions(graph: Graph) -> frozenset[str]:
    """Return the names of the regions that have experts."""
    return frozenset(r.name for r in graph.regions if any(has(n, Trait.ROUTES, Trait.DISPATCHES) for n in r.nodes))


def imbalance_of(region: Region, popularity: tuple[str, ...], axes: tuple[str, ...]) -> Dim:
    """Return the rows of the busiest of the ranks on some axes over the mean; 1 without experts.

    `popularity` says how popular experts are, then `eplb` where that places them, then how many copies banks have.
    """
    banks = (n for n in region.nodes if has(n, Trait.BANK, backward=False))
    num, picked = next((region.by_id[n.inputs[1]].type.dims[0] for n in banks), None), top_k(region)
    named = next(iter(popularity), "")
    if not named or not isinstance(num, int) or not isinstance(picked, int):
        return 1
    copies = int(popularity[2]) if len(popularity) > 2 else 0
    return busiest_of(named, num - copies, picked, copies, "eplb" in popularity, axes)


def top_k(region: Region) -> Dim:
    """Experts a token goes to; 1 where nothing is dispatched."""
    ids = (n.inputs[1] for n in region.nodes if has(n, Trait.DISPATCHES, backward=False))
    return next((region.by_id[i].type.dims[1] for i in ids), 1)
