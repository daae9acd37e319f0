"""Gradient reductions of a region joined into one message, as data-parallel libraries do with buckets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.graph import Graph, Node, Phase, Region
from ..ir.ops.collectives import CollectiveAttrs
from .base import Pass, PassResult


@dataclass(frozen=True, slots=True)
class Bucket(Pass):
    """Join the once-a-step collectives of a region that share kind and axis."""

    name: ClassVar[str] = "bucket"

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that have more than one such collective."""
        regions = tuple(_rewrite(r) for r in graph.regions)
        changed = regions != graph.regions
        return PassResult(graph.with_regions(regions) if changed else graph, changed)


def _rewrite(region: Region) -> Region:
    groups: dict[tuple[int, str, str, int], list[Node]] = {}
    level: dict[int, int] = {}
    kept: list[Node] = []
    for node in region.nodes:
        if node.phase is not Phase.REDUCE or not isinstance(node.attrs, CollectiveAttrs):
            kept.append(node)
            continue
        depth = 1 + max((level.get(i, -1) for i in node.inputs), default=-1)
        level.update(dict.fromkeys(node.outputs, depth))
        groups.setdefault((depth, node.op, node.attrs.axis, node.attrs.dim), []).append(node)
    if all(len(g) == 1 for g in groups.values()):
        return region
    joined = [_join(groups[key]) for key in sorted(groups)]
    return replace(region, nodes=(*kept, *joined))


def _join(nodes: list[Node]) -> Node:
    first = nodes[0]
    if len(nodes) == 1:
        return first
    assert isinstance(first.attrs, CollectiveAttrs)
    attrs = replace(first.attrs, why=f"{len(nodes)} gradients reduced together over {first.attrs.axis}")
    inputs = tuple(i for n in nodes for i in n.inputs)
    outputs = tuple(o for n in nodes for o in n.outputs)
    return Node(first.op, inputs, outputs, attrs, _common_scope([n.scope for n in nodes]), Phase.REDUCE)


def _common_scope(scopes: list[str]) -> str:
    """Return the longest module path that all share.

    >>> _common_scope(["model.layers.*.mlp.up_proj", "model.layers.*.input_layernorm"])
    'model.layers.*'
    """
    parts = [s.split(".") for s in scopes]
    shared: list[str] = []
    for column in zip(*parts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return ".".join(shared)
