"""A graph whose weights are frozen: backward nodes that nothing needs any more, and matrices that rest in few bits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...ir.graph import Graph, Node, Phase, Port, Region, Role, Value
from ...ir.ops import Trait, has
from ...ir.rewriter import RegionRewriter
from ...ir.types import DType, TensorType


def without_idle(graph: Graph) -> Graph:
    """Drop nodes of the backward phase whose results no gradient and no other region needs, until none is left."""
    while True:
        read = {v.name for r in graph.regions for v in r.of_role(Role.PORT)}
        made = graph.with_regions(tuple(_live(r, read) for r in graph.regions))
        if made == graph:
            return graph
        graph = made


def _live(region: Region, read: set[str]) -> Region:
    """Drop idle nodes of a region, and ports that no region reads. Gradients of banks of frozen experts go alone."""
    needed = {p.value for p in region.outputs if _leaves(region, p, read)} | {g for _, g in region.grads}
    nodes: list[Node] = []
    for node in reversed(region.nodes):
        if node.phase is Phase.BACKWARD and needed.isdisjoint(node.outputs):
            continue
        if has(node, Trait.ROUTES) and node.phase is Phase.BACKWARD:
            # The first two are gradients of tokens and of routing weights, the others of the bank.
            node = replace(node, outputs=(*node.outputs[:2], *(o for o in node.outputs[2:] if o in needed)))
        nodes.append(node)
        needed |= set(node.inputs)
    outputs = tuple(p for p in region.outputs if _leaves(region, p, read))
    made = {o for n in nodes for o in n.outputs}
    kept = {*made, *needed, *(v.id for v in region.values if v.role in (Role.PARAM, Role.INPUT, Role.BUFFER))}
    values = tuple(v for v in region.values if v.id in kept)
    return replace(region, values=values, nodes=tuple(reversed(nodes)), outputs=outputs)


def _leaves(region: Region, port: Port, read: set[str]) -> bool:
    """Whether something outside wants an output: another region, or, of the forward phase, whoever runs the model."""
    return region.phase_of(port.value) is Phase.FORWARD or port.name in read


def at_rest(region: Region, matrices: Collection[str], kind: DType) -> Region:
    """Let frozen matrices rest in few bits: each product reads a copy that is widened right before it."""
    at = RegionRewriter(region)
    rest = {v.id for v in region.of_role(Role.PARAM) if v.name in matrices}
    for node in region.nodes:
        for place, weight in enumerate(node.inputs):
            if weight in rest:
                wide = at.add(Value(0, region.by_id[weight].type, 0))
                at.insert_before(node, Node("cast", (weight,), (wide,), scope=node.scope, phase=node.phase))
                at.read(node, place, wide)
    at.values.update((i, replace(at.values[i], type=TensorType(at.values[i].type.dims, kind))) for i in rest)
    return at.finish()
