"""Data-parallel messages of a region joined into one each, as data-parallel libraries do with buckets and units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from ..ir.editing.rewriter import RegionRewriter
from ..ir.errors import UnknownNameError
from ..ir.graph import Graph, Node, Phase, Region, Workload
from ..ir.ops import Trait, has
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.plan import RESHARD
from ..ir.records import dataclass
from ..ir.saved import mark_saved
from .base import Pass, PassResult, require_sharded
from .gathers import casts_parameter, gather_once, gathered_parameters, gathers_parameter


@dataclass(frozen=True, slots=True)
class Bucket(Pass):
    """Join what a region sends for its parameters and gradients.

    Gathers of parameters become one message at the first use; gradients that are reduced every micro-batch become one
    behind the last of them; reductions once a step become one a kind and axis.

    | option    | meaning                                                                                           |
    |-----------|---------------------------------------------------------------------------------------------------|
    | keep_last | parameters of the last region stay gathered until its backward phase, which follows at once       |
    | reshard   | when gathered parameters are freed: behind each phase of a layer, micro-batch, step                |
    """

    name: ClassVar[str] = "bucket"
    keep_last: bool = False
    reshard: str = "layer"

    def requires(self, graph: Graph) -> None:
        """Messages come from `shard`."""
        if graph.workload is Workload.TRAIN:
            require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that have more than one such collective."""
        if self.reshard not in RESHARD:
            raise UnknownNameError.of("reshard policy", self.reshard, RESHARD)
        last = graph.sequence_once()[-1] if self.keep_last else None
        kept = tuple(self._kept(r) if self.reshard != "layer" or r.name == last else r for r in graph.regions)
        regions = tuple(_rewrite(_unit_again(r)) for r in kept)
        if regions == graph.regions:
            return PassResult(graph, changed=False)
        joined = graph.with_regions(regions)
        if kept == graph.regions:
            return PassResult(joined, changed=True)
        marked = mark_saved(joined)
        stay = [r.name for r in graph.regions if self.reshard == "microbatch" or r.name == last]
        whole = tuple(_unit_saved(r) if r.name in stay and self.reshard != "step" else r for r in marked.regions)
        return PassResult(graph.with_regions(whole), changed=True)

    def _kept(self, region: Region) -> Region:
        """Let later phases read what the forward phase gathered, and under `step` later micro-batches too."""
        early = [n for n in region.nodes if n.phase is Phase.FORWARD and gathers_parameter(region, n)]
        at = RegionRewriter(region)
        gather_once(at, {gathered_parameters(region, n): n.key for n in early})
        if self.reshard == "step":
            casts = [n for n in region.nodes if n.phase is Phase.FORWARD and casts_parameter(region, n)]
            for node in (*casts, *early):
                at.erase(node)
                at.prepend(replace(node, phase=Phase.PREPARE))
        return at.finish()


def _unit_saved(region: Region) -> Region:
    """A unit is kept whole, as FSDP2 does: also the parameters that the backward phase does not read."""
    whole = {o for n in region.nodes if n.phase is Phase.FORWARD and gathers_parameter(region, n) for o in n.outputs}
    return replace(region, values=tuple(replace(v, saved=True) if v.id in whole else v for v in region.values))


def _unit_again(region: Region) -> Region:
    """Gather a unit anew as a whole, as FSDP2 does: also the parameters that the later phases do not read.

    A region whose later phases read none of its parameters (a table's) is not gathered again.
    """
    gathers = [n for n in region.nodes if gathers_parameter(region, n)]
    later = {_kind(n): n for n in reversed(gathers) if n.phase in (Phase.RECOMPUTE, Phase.BACKWARD)}
    again = {
        p for n in gathers if n.phase in (Phase.RECOMPUTE, Phase.BACKWARD) for p, _ in gathered_parameters(region, n)
    }
    idle = [
        n
        for n in gathers
        if n.phase is Phase.FORWARD
        and _kind(n) in later
        and again.isdisjoint(p for p, _ in gathered_parameters(region, n))
    ]
    at = RegionRewriter(region)
    for node in idle:
        first = later[_kind(node)]
        at.insert_after(first, *(replace(n, phase=first.phase) for n in at.copies([node], region, {})))
    return at.finish()


def _rewrite(region: Region) -> Region:
    # Gathers of parameters, those of a phase and group together.
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in region.nodes:
        if node.phase is not Phase.REDUCE and gathers_parameter(region, node):
            found.setdefault((node.phase in (Phase.PREPARE, Phase.FORWARD), *_kind(node)), []).append(node)
    gathers, reductions = list(found.values()), _reductions(region)
    once = [n for n in region.nodes if n.phase is Phase.REDUCE]
    if not gathers and not reductions and not once:
        return region
    joined = {group[0].key: _join(group, "parameters gathered") for group in gathers}
    sent = {n.key for group in reductions for n in group}
    gone = sent | {n.key for group in gathers for n in group[1:]} | {n.key for n in once}
    nodes = [joined.get(n.key, n) for n in region.nodes if n.key not in gone]
    # Casts of what is reduced next: they fill the message.
    sent = {i for group in reductions for n in group for i in n.inputs}
    filling = [n for n in nodes if has(n, Trait.CASTS) and n.key in sent]
    sums = [n for n in nodes if has(n, Trait.ACCUMULATES)] if reductions else []
    first = [n for n in nodes if n not in (*filling, *sums)]
    early = _joined(reductions, "gradients reduced")
    return replace(region, nodes=(*first, *filling, *early, *sums, *_in_rounds(once)))


def _reductions(region: Region) -> list[list[Node]]:
    """What is reduced in every micro-batch, of a group together."""
    summed = {i for n in region.nodes if has(n, Trait.ACCUMULATES) for i in n.inputs}
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in region.nodes:
        if _talks(node) and summed.intersection(node.outputs):
            found.setdefault(_kind(node), []).append(node)
    return list(found.values())


def _in_rounds(once: list[Node]) -> Iterator[Node]:
    """What runs once a step, in rounds: messages that wait for no other one, what is made of them, the next messages.

    Slices and casts come in the round of what they read.
    """
    level: dict[int, int] = {}
    quiet: dict[int, list[Node]] = {}
    rounds: dict[int, dict[tuple[object, ...], list[Node]]] = {}
    for node in once:
        depth = max((level.get(i, -1) for i in node.inputs), default=-1) + _talks(node)
        level.update(dict.fromkeys(node.outputs, depth))
        if _talks(node):
            rounds.setdefault(depth, {}).setdefault(_kind(node), []).append(node)
        else:
            quiet.setdefault(depth, []).append(node)
    for depth in sorted({*quiet, *rounds}):
        yield from _joined((g for _, g in sorted(rounds.get(depth, {}).items(), key=str)), "gradients reduced")
        yield from quiet.get(depth, [])


def _talks(node: Node) -> bool:
    return isinstance(node.attrs, CollectiveAttrs)


def _kind(node: Node) -> tuple[object, ...]:
    assert isinstance(node.attrs, CollectiveAttrs)
    return node.op, node.attrs.axis, node.attrs.dim, str(node.attrs.tail)


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
