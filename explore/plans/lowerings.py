"""Families of plans of one model lowered one behind the other: what they have in common is worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...driver.estimate import Lowered, compiled, pipeline_for
from ...ir.errors import SlipstickError
from ...ir.graph import Graph, Region
from ...ir.kept import RecentResults
from ...ir.plan import Family
from ...ir.plan.layout.layouts import Layouts
from ...ir.sizes.fixed_sizes import check_open
from ...passes.base import Pass
from ...passes.manager import Prefixes


def side_by_side(families: Sequence[Family]) -> list[int]:
    """Return the place of each family in an order in which those that begin with the same passes are neighbours.

    So a worker runs each pass once, with few graphs in memory. Families with one pipeline share a place.
    """
    number: dict[tuple[Pass, ...], int] = {}
    keys = list[tuple[int, ...]]()
    for family in families:
        try:
            passes = pipeline_for(family).passes
        except SlipstickError:  # whoever lowers it says so
            passes = ()
        keys.append(tuple(number.setdefault(passes[: k + 1], len(number)) for k in range(len(passes))))
    place = {key: k for k, key in enumerate(sorted(set(keys)))}
    return [place[key] for key in keys]


# Families compiled and graphs in between that are kept, some megabytes each for a large model.
FAMILIES, GRAPHS = 24, 64
# Regions of lowered graphs that are known again; a family has three to a dozen.
REGIONS = 512


class Lowerings:
    """Lowers families of one graph as `lower` does, and keeps what the next ones may need.

    Families that differ in nothing that the graph shows, as the schedule, are one; those that differ in how layers lie
    on stages share all but that; others share the passes with which their pipelines begin, and all share layouts.
    """

    __slots__ = ("_compiled", "_graph", "_layouts", "_prefixes", "_regions")

    def __init__(self, graph: Graph, families: int = FAMILIES, graphs: int = GRAPHS) -> None:
        """Keep a traced graph; so many families and graphs at most, those asked for last."""
        check_open(graph)
        self._graph = graph
        self._prefixes = Prefixes(graph, graphs)
        self._compiled = RecentResults[tuple[tuple[Pass, ...], str], Lowered](families)
        self._layouts = Layouts()
        self._regions = RecentResults[Region, Region](REGIONS)

    def of(self, family: Family) -> Lowered:
        """Return the graph lowered for a family, with the errors of `lower`."""
        pipeline = pipeline_for(family)

        def made() -> Lowered:
            lowered, times = self._prefixes.run(pipeline)
            return compiled(self._graph, family, self._known(lowered), times, self._layouts)

        found = self._compiled.of((pipeline.passes, family.order), made)
        stages = found.stages.laid(family.pp_layout, family.recomputed_layers)
        return found if stages is found.stages else replace(found, stages=stages)

    def _known(self, graph: Graph) -> Graph:
        """Return a lowered graph with regions of others in the place of equal ones: what is kept of these is found."""

        def kept(region: Region) -> Region:
            return self._regions.of(region, lambda: region)

        return replace(graph, regions=tuple(map(kept, graph.regions)))
