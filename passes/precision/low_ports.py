"""Casts of what a layer hands to the next one: written beside it by the kernel that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Graph, Node, Port, Region, Role, Value
from ...ir.ops import Trait, has
from ...ir.types import DType

_CAST = "_cast"


def carried(graph: Graph, makers: Mapping[DType, frozenset[str]]) -> Graph:
    """Return a graph whose layers hand on tensors cast, where kernels that can write them so make them everywhere.

    `makers` are these kernels, by the type that they write. The norm of the next layer stands at the end of the one
    before: it writes what products read and, for the head, its result as it is. What readers want in several types is
    cast where it is read.
    """
    made = graph
    for port, dtype in _cast_alike(graph).items():
        sources = {r.name: p.value for r in graph.regions for p in r.outputs if p.name == port}
        kernels = makers.get(dtype, frozenset())
        if sources and all(_writes(graph.region(name), value, kernels) for name, value in sources.items()):
            made = _handed_on(made, port, sources, dtype)
    return made


def _cast_alike(graph: Graph) -> Mapping[str, DType]:
    """The ports that all their readers cast to one type, and the type."""
    found: dict[str, list[DType]] = {}
    for region in graph.regions:
        for port, node in _cast_here(region):
            found.setdefault(port, []).append(region.by_id[node.key].type.dtype)
    return {port: kinds[0] for port, kinds in found.items() if len(set(kinds)) == 1}


def _cast_here(region: Region) -> list[tuple[str, Node]]:
    """The casts of ports, with the name of the port."""
    found = ((region.by_id[n.inputs[0]], n) for n in region.nodes if has(n, Trait.QUANTISES))
    return [(v.name, n) for v, n in found if v.role is Role.PORT]


def _writes(region: Region, value: int, makers: frozenset[str]) -> bool:
    node = region.producer.get(value)
    return node is not None and node.op in makers and node.key == value


def _handed_on(graph: Graph, port: str, sources: Mapping[str, int], dtype: DType) -> Graph:
    casts = {r.name: node for r in graph.regions for name, node in _cast_here(r) if name == port}
    regions = []
    for region in graph.regions:
        made = _read(region, port, casts[region.name]) if region.name in casts else region
        regions.append(_written(made, port, sources[region.name], dtype) if region.name in sources else made)
    return graph.with_regions(tuple(regions))


def _read(region: Region, port: str, cast: Node) -> Region:
    """Take a tensor that comes cast."""
    at = RegionRewriter(region)
    at.values[cast.key] = replace(region.by_id[cast.key], role=Role.PORT, name=port + _CAST)
    at.erase(cast)
    return at.finish()


def _written(region: Region, port: str, source: int, dtype: DType) -> Region:
    """Let the kernel of a port write it cast, too."""
    at, old = RegionRewriter(region), region.by_id[source]
    made = at.add(Value(0, replace(old.type, dtype=dtype), 0, placements=old.placements))
    node = region.producer[source]
    at.replace(node, replace(node, outputs=(*node.outputs, made)))
    at.outputs = (*region.outputs, Port(port + _CAST, made))
    return at.finish()
