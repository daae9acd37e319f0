"""Data-parallel messages of a region joined into one each, as data-parallel libraries do with buckets and units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.graph import Graph, Node, Phase, Region, Role
from ..ir.ops.collectives import CollectiveAttrs
from .base import Pass, PassResult


@dataclass(frozen=True, slots=True)
class Bucket(Pass):
    """Join what a region sends for its parameters and gradients.

    Gathers of parameters become one message at the first use; gradients that are reduced every micro-batch become one
    behind the last of them; reductions once a step become one a kind and axis.
    """

    name: ClassVar[str] = "bucket"

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that have more than one such collective."""
        regions = tuple(_rewrite(r) for r in graph.regions)
        changed = regions != graph.regions
        return PassResult(graph.with_regions(regions) if changed else graph, changed)


def _rewrite(region: Region) -> Region:
    gathers, reductions, once, rest = _sorted_out(region)
    if len(gathers) + len(reductions) + len(once) == 0:
        return region
    joined = {group[0].key: _join(group, "parameters gathered") for group in gathers}
    gone = {n.key for group in gathers for n in group[1:]}
    nodes = [joined.get(n.key, n) for n in rest if n.key not in gone]
    late = [n for n in nodes if n.op == "accumulate"] if reductions else []
    nodes = [n for n in nodes if n not in late]
    return replace(
        region, nodes=(*nodes, *_joined(reductions, "gradients reduced"), *late, *_joined(once, "gradients reduced"))
    )


def _sorted_out(region: Region) -> tuple[list[list[Node]], list[list[Node]], list[list[Node]], list[Node]]:
    """Gathers of parameters by phase, reductions a micro-batch, reductions a step (in dependency order), the rest."""
    gathers: dict[tuple[object, ...], list[Node]] = {}
    reductions: dict[tuple[object, ...], list[Node]] = {}
    once: dict[tuple[object, ...], list[Node]] = {}
    rest: list[Node] = []
    level: dict[int, int] = {}
    summed = {i for n in region.nodes if n.op == "accumulate" for i in n.inputs}
    for node in region.nodes:
        if not isinstance(node.attrs, CollectiveAttrs):
            rest.append(node)
            continue
        kind = (node.op, node.attrs.axis, node.attrs.dim)
        if node.phase is Phase.REDUCE:
            depth = 1 + max((level.get(i, -1) for i in node.inputs), default=-1)
            level.update(dict.fromkeys(node.outputs, depth))
            once.setdefault((depth, *kind), []).append(node)
        elif summed.intersection(node.outputs):
            reductions.setdefault(kind, []).append(node)
        else:
            rest.append(node)
            if node.op == "all_gather" and _is_parameter(region, node):
                early = node.phase is Phase.FORWARD
                gathers.setdefault((early, *kind), []).append(node)
    ordered = [once[key] for key in sorted(once, key=str)]
    return list(gathers.values()), list(reductions.values()), ordered, rest


def _is_parameter(region: Region, node: Node) -> bool:
    return all(region.by_id[i].role is Role.PARAM for i in node.inputs)


def _joined(groups: Iterable[list[Node]], what: str) -> Iterator[Node]:
    yield from (_join(group, what) for group in groups)


def _join(nodes: list[Node], what: str) -> Node:
    first = nodes[0]
    if len(nodes) == 1:
        return first
    assert isinstance(first.attrs, CollectiveAttrs)
    attrs = replace(first.attrs, why=f"{len(nodes)} {what} together over {first.attrs.axis}")
    inputs = tuple(i for n in nodes for i in n.inputs)
    outputs = tuple(o for n in nodes for o in n.outputs)
    return Node(first.op, inputs, outputs, attrs, common_scope([n.scope for n in nodes]), first.phase)


def common_scope(scopes: list[str]) -> str:
    """Return the longest module path that all share.

    >>> common_scope(["model.layers.*.mlp.up_proj", "model.layers.*.input_layernorm"])
    'model.layers.*'
    """
    parts = [s.split(".") for s in scopes]
    shared: list[str] = []
    for column in zip(*parts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return ".".join(shared)
