"""Activation recomputation: what the forward phase does not keep, the backward phase computes again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.errors import UnknownNameError
from ..ir.graph import Graph, Node, Phase, Region, Role, Value, Workload
from ..ir.saved import mark_saved
from .base import Pass, PassResult

POLICIES = ("none", "selective", "full")

# The attention core: cheap to compute again for what it would keep (Korthikanti et al., arXiv 2205.05198).
_CORE = frozenset({"attention", "softmax"})


@dataclass(frozen=True, slots=True)
class Recompute(Pass):
    """Recompute inside every layer.

    | option | meaning                                                                                           |
    |--------|---------------------------------------------------------------------------------------------------|
    | policy | full: keep only the layer's input; selective: recompute the attention core; none: keep everything |

    What is recomputed includes the communication of the forward phase, and stops where nothing further is needed.
    """

    name: ClassVar[str] = "recompute"
    policy: str = "full"

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that repeat; prologue and epilogue run once and stay."""
        if self.policy not in POLICIES:
            raise UnknownNameError.of("recompute policy", self.policy, POLICIES)
        if self.policy == "none" or graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        ends = {graph.sequence_once()[0], graph.sequence_once()[-1]}
        regions = tuple(r if r.name in ends else _rewrite(r, self.policy) for r in graph.regions)
        return PassResult(mark_saved(graph.with_regions(regions)), changed=True)


def _rewrite(region: Region, policy: str) -> Region:
    forward = [n for n in region.nodes if n.phase is Phase.FORWARD]
    again = {n.key for n in forward if policy == "full" or n.op in _CORE}
    clones = _needed(region, forward, again)
    if not clones:
        return region
    return _with_clones(region, clones, again)


def _needed(region: Region, forward: list[Node], again: set[int]) -> list[Node]:
    """Return, in order, the forward nodes whose results backward needs and may not keep, with what they need."""
    wanted = {i for n in region.nodes if n.phase is Phase.BACKWARD for i in _reads(region, n, again)}
    chosen: list[Node] = []
    for node in reversed(forward):
        if node.key in again and wanted.intersection(node.outputs):
            chosen.append(node)
            wanted.update(node.inputs)
    chosen.reverse()
    return chosen


def _reads(region: Region, node: Node, again: set[int]) -> Iterable[int]:
    """The inputs that a backward node takes from a recomputed node.

    Where only some nodes are recomputed, their own backward reads the new results; others keep what they read.
    """
    for i in node.inputs:
        source = region.producer.get(i)
        if source is not None and source.key in again:
            yield i


def _with_clones(region: Region, clones: list[Node], again: set[int]) -> Region:
    fresh = max(v.id for v in region.values) + 1
    renamed: dict[int, int] = {}
    values: list[Value] = []
    nodes: list[Node] = []
    everything = {n.key for n in region.nodes if n.phase is Phase.FORWARD and region.by_id[n.key].role is Role.RESULT}
    partly = not everything <= again
    for clone in clones:
        outs = tuple(fresh + len(renamed) + k for k in range(len(clone.outputs)))
        renamed.update(zip(clone.outputs, outs, strict=True))
        values += [_copy(region.by_id[o], new, renamed) for o, new in zip(clone.outputs, outs, strict=True)]
        inputs = tuple(renamed.get(i, i) for i in clone.inputs)
        nodes.append(replace(clone, inputs=inputs, outputs=outs, phase=Phase.RECOMPUTE, forward=clone.key))
    kept, regathered = _gathered_once(region, renamed)
    rewired = [_rewired(n, {**renamed, **regathered}, clones, partly) for n in kept]
    first = next(k for k, n in enumerate(rewired) if n.phase is not Phase.FORWARD)
    made = (*rewired[:first], *nodes, *rewired[first:])
    alive = {o for n in made for o in n.outputs}
    old = tuple(v for v in region.values if v.role is not Role.RESULT or v.id in alive)
    return replace(region, values=(*old, *values), nodes=made)


def _gathered_once(region: Region, renamed: Mapping[int, int]) -> tuple[list[Node], dict[int, int]]:
    """A parameter gathered to recompute stays gathered for the backward phase: its second gather is dropped."""
    again = {n.inputs: renamed[n.key] for n in region.nodes if n.key in renamed and _gathers_parameter(region, n)}
    second = {
        n.key: again[n.inputs]
        for n in region.nodes
        if n.phase is Phase.BACKWARD and _gathers_parameter(region, n) and n.inputs in again
    }
    return [n for n in region.nodes if n.key not in second], second


def _gathers_parameter(region: Region, node: Node) -> bool:
    return node.op == "all_gather" and all(region.by_id[i].role is Role.PARAM for i in node.inputs)


def _copy(v: Value, ident: int, renamed: dict[int, int]) -> Value:
    storage = ident if v.storage == v.id else renamed.get(v.storage, v.storage)
    return replace(v, id=ident, storage=storage, saved=False)


def _rewired(node: Node, renamed: dict[int, int], clones: list[Node], partly: bool) -> Node:
    """Backward nodes read the recomputed values; under a partial policy only those of the recomputed nodes do."""
    if node.phase is not Phase.BACKWARD:
        return node
    if partly and node.forward not in {c.key for c in clones}:
        renamed = {i: r for i, r in renamed.items() if i not in {o for c in clones for o in c.outputs}}
    return replace(node, inputs=tuple(renamed.get(i, i) for i in node.inputs))
