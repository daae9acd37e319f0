"""Families of plans of one model lowered one behind the other: what they have in common is worked out once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...driver.estimate import Lowered, compiled, pipeline_for
from ...ir.errors import SlipstickError
from ...ir.graph import Graph, Region
from ...ir.kept import RecentResults
from ...ir.plan import Family
from ...ir.plan.layout.layouts import Layouts
from ...ir.schedules.registry import USUAL
from ...ir.sizes.fixed_sizes import check_open
from ...passes.base import Pass
from ...passes.manager import Prefixes
from ...passes.pipeline import Pipeline


def side_by_side(families: Sequence[Family]) -> list[int]:
    """Return the place of each family in an order in which those that begin with the same passes are neighbours.

    So a worker runs each pass once, with few graphs in memory. Families with one pipeline share a place.
    """
    number: dict[tuple[Pass, ...], int] = {}
    keys = list[tuple[int, ...]]()
    for passes in map(_passes, families):
        keys.append(tuple(number.setdefault(passes[: k + 1], len(number)) for k in range(len(passes))))
    place = {key: k for k, key in enumerate(sorted(set(keys)))}
    return [place[key] for key in keys]


def with_stages(families: Collection[Family]) -> Mapping[Family, Family]:
    """Return, of each family without stages, one of the same passes and stages besides, where families have these.

    A plan of one stage is the same to the last bit on its graph: what stages exchange, none sends. So a search that
    tries both lowers half as many graphs.
    """
    staged = {_without_stages(family): replace(family, schedule=USUAL) for family in families if family.pp}
    found = {family: staged[key] for family in families if not family.pp and (key := _without_stages(family)) in staged}
    return {
        family: other
        for family, other in found.items()
        if _passes(family) == tuple(step for step in _passes(other) if step.name != Pipeline.name)
    }


def _without_stages(family: Family) -> Family:
    return replace(family, pp=False, scatter_p2p=False, schedule=USUAL)


def _passes(family: Family) -> tuple[Pass, ...]:
    try:
        return pipeline_for(family).passes
    except SlipstickError:  # whoever lowers it says so
        return ()


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
