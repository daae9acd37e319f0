"""A graph as a networkx DiGraph, for the users and algorithms of networkx; read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..graph import Graph, Phase, Port, Region, Role, Value

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(graph: Graph) -> nx.DiGraph[str]:
    """Return one frozen DiGraph: nodes are ops and inputs, edges are values.

    Nodes are named `region/%id` and carry op, scope, phase, region, count and type; edges carry value and type.
    Ports link regions; a block appears once, with its count, and reads what its first run reads, so that the graph
    has no circle.
    """
    import networkx as nx

    out: nx.DiGraph[str] = nx.DiGraph(name=graph.name, workload=str(graph.workload))
    for region in graph.regions:
        _add_region(out, graph, region)
    order = [graph.region(name) for run in graph.schedule if run.count for name in run.regions]
    for source, port, target, value in (*_links(order, True), *_links(order[::-1], False)):
        made = source.producer[port.value].key if port.value in source.producer else port.value
        out.add_edge(f"{source.name}/%{made}", f"{target.name}/%{value.id}", port=port.name)
    nx.freeze(out)
    return out


def _add_region(out: nx.DiGraph[str], graph: Graph, region: Region) -> None:
    count = graph.counts[region.name]
    for v in region.values:
        if v.role is not Role.RESULT:
            out.add_node(f"{region.name}/%{v.id}", op=str(v.role), name=v.name, type=str(v.type), count=count)
    for node in region.nodes:
        key = f"{region.name}/%{node.key}"
        types = [str(region.by_id[o].type) for o in node.outputs]
        out.add_node(key, op=node.op, scope=node.scope, phase=str(node.phase), type="; ".join(types), count=count)
        for i in node.inputs:
            source = region.producer[i].key if i in region.producer else i
            out.add_edge(f"{region.name}/%{source}", key, value=i, type=str(region.by_id[i].type))


def _links(order: Sequence[Region], forward: bool) -> Iterator[tuple[Region, Port, Region, Value]]:
    """Yield what the first run of each region reads: linking later runs would close a circle."""
    latest: dict[str, tuple[Region, Port]] = {}
    seen: set[str] = set()
    for region in order:
        if region.name not in seen:
            read = (v for v in region.of_role(Role.PORT) if v.name in latest)
            yield from ((*latest[v.name], region, v) for v in read)
        seen.add(region.name)
        latest.update({p.name: (region, p) for p in region.outputs if _is_forward(region, p) is forward})


def _is_forward(region: Region, port: Port) -> bool:
    node = region.producer.get(port.value)
    return node is None or node.phase is Phase.FORWARD
