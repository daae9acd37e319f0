"""Data-parallel messages of a region joined into one each, as data-parallel libraries do with buckets and units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.graph import Graph, Node, Phase, Region, Workload
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.saved import mark_saved
from .base import Pass, PassResult, require_sharded
from .gathers import gathered_once, gathers_parameter


@dataclass(frozen=True, slots=True)
class Bucket(Pass):
    """Join what a region sends for its parameters and gradients.

    Gathers of parameters become one message at the first use; gradients that are reduced every micro-batch become one
    behind the last of them; reductions once a step become one a kind and axis.

    | option    | meaning                                                                                           |
    |-----------|---------------------------------------------------------------------------------------------------|
    | keep_last | parameters of the last region stay gathered until its backward phase, which follows at once       |
    """

    name: ClassVar[str] = "bucket"
    keep_last: bool = False

    def requires(self, graph: Graph) -> None:
        """Messages come from `shard`."""
        if graph.workload is Workload.TRAIN:
            require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that have more than one such collective."""
        last = graph.sequence_once()[-1]
        kept = tuple(_kept_gathered(r) if self.keep_last and r.name == last else r for r in graph.regions)
        regions = tuple(_rewrite(r) for r in kept)
        if regions == graph.regions:
            return PassResult(graph, changed=False)
        joined = graph.with_regions(regions)
        return PassResult(joined if kept == graph.regions else mark_saved(joined), changed=True)


def _kept_gathered(region: Region) -> Region:
    """Let the backward phase read what the forward phase gathered."""
    early = (n for n in region.nodes if n.phase is Phase.FORWARD and gathers_parameter(region, n))
    return gathered_once(region, {n.inputs: n.key for n in early})


def _rewrite(region: Region) -> Region:
    gathers, reductions, once, rest = _sorted_out(region)
    if len(gathers) + len(reductions) + len(once) == 0:
        return region
    joined = {group[0].key: _join(group, "parameters gathered") for group in gathers}
    gone = {n.key for group in gathers for n in group[1:]}
    nodes = [joined.get(n.key, n) for n in rest if n.key not in gone]
    late = [n for n in nodes if n.op == "accumulate" or n.phase is Phase.REDUCE] if reductions else []
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
            if gathers_parameter(region, node):
                early = node.phase is Phase.FORWARD
                gathers.setdefault((early, *kind), []).append(node)
    ordered = [once[key] for key in sorted(once, key=str)]
    return list(gathers.values()), list(reductions.values()), ordered, rest


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
