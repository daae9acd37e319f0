"""Casts of what a layer hands to the next one: written beside it by the kernel that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.graph import Graph, Node, Port, Region, Role, Value
from ..ir.types import DType

_CAST = "_cast"


def carried(graph: Graph, makers: frozenset[str]) -> Graph:
    """Return a graph whose layers hand on tensors cast, where kernels that can write them so make them everywhere.

    The norm of the next layer stands at the end of the one before: it writes what products read and, for the head, its
    result as it is.
    """
    made = graph
    for port in dict.fromkeys(p for r in graph.regions for p in _cast_here(r)):
        sources = {r.name: p.value for r in graph.regions for p in r.outputs if p.name == port}
        if sources and all(_writes(graph.region(name), value, makers) for name, value in sources.items()):
            made = _handed_on(made, port, sources)
    return made


def _cast_here(region: Region) -> Mapping[str, Node]:
    """The casts of ports, by the name of the port."""
    found = ((region.by_id[n.inputs[0]], n) for n in region.nodes if n.op == "quantise")
    return {v.name: n for v, n in found if v.role is Role.PORT}


def _writes(region: Region, value: int, makers: frozenset[str]) -> bool:
    node = region.producer.get(value)
    return node is not None and node.op in makers and node.key == value


def _handed_on(graph: Graph, port: str, sources: Mapping[str, int]) -> Graph:
    casts = {r.name: found[port] for r in graph.regions if port in (found := _cast_here(r))}
    dtype = next(graph.region(name).by_id[node.key].type.dtype for name, node in casts.items())
    regions = []
    for region in graph.regions:
        made = _read(region, port, casts[region.name]) if region.name in casts else region
        regions.append(_written(made, port, sources[region.name], dtype) if region.name in sources else made)
    return graph.with_regions(tuple(regions))


def _read(region: Region, port: str, cast: Node) -> Region:
    """Take a tensor that comes cast."""
    nodes = tuple(n for n in region.nodes if n is not cast)
    used = {i for n in nodes for i in n.inputs} | {p.value for p in region.outputs}
    came = replace(region.by_id[cast.key], role=Role.PORT, name=port + _CAST)
    values = (came if v.id == cast.key else v for v in region.values if v.id != cast.inputs[0] or v.id in used)
    return replace(region, values=tuple(values), nodes=nodes)


def _written(region: Region, port: str, source: int, dtype: DType) -> Region:
    """Let the kernel of a port write it cast, too."""
    ident, old = max(v.id for v in region.values) + 1, region.by_id[source]
    made = Value(ident, replace(old.type, dtype=dtype), ident, placements=old.placements)
    nodes = (replace(n, outputs=(*n.outputs, ident)) if n.key == source else n for n in region.nodes)
    outputs = (*region.outputs, Port(port + _CAST, ident))
    return replace(region, values=(*region.values, made), nodes=tuple(nodes), outputs=outputs)
