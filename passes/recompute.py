"""Activation recomputation: what the forward phase does not keep, the backward phase computes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..ir.errors import UnknownNameError
from ..ir.graph import Graph, Node, Phase, Region, Role, Value, Workload
from ..ir.ops import OpClass, op_def
from ..ir.saved import mark_saved
from .base import Pass, PassResult
from .gathers import gathered_once, gathers_parameter, renamed

POLICIES = ("none", "selective", "full")

_PRODUCTS = (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS)


@dataclass(frozen=True, slots=True)
class Recompute(Pass):
    """Recompute inside every layer.

    | option     | meaning                                                                                           |
    |------------|---------------------------------------------------------------------------------------------------|
    | policy     | full: keep only the layer's input; selective: recompute the attention core; none: keep everything |
    | early_stop | stop where nothing further is needed; false: run all of it again, as reentrant checkpoints do     |

    The attention core is what Korthikanti et al. (arXiv 2205.05198) recompute: the scores, their softmax and dropout,
    and the product with the values; all of fused attention. What is recomputed includes the communication of the
    forward phase. Parameters that are gathered for it stay gathered for the backward phase.
    """

    name: ClassVar[str] = "recompute"
    policy: str = "full"
    early_stop: bool = True

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that repeat; prologue and epilogue run once and stay."""
        if self.policy not in POLICIES:
            raise UnknownNameError.of("recompute policy", self.policy, POLICIES)
        if self.policy == "none" or graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        ends = {graph.sequence_once()[0], graph.sequence_once()[-1]}
        regions = tuple(r if r.name in ends else self._rewrite(r) for r in graph.regions)
        if regions == graph.regions:
            return PassResult(graph, changed=False)
        return PassResult(mark_saved(graph.with_regions(regions)), changed=True)

    def _rewrite(self, region: Region) -> Region:
        forward = [n for n in region.nodes if n.phase is Phase.FORWARD]
        again = {n.key for n in forward} if self.policy == "full" else _attention_core(region, forward)
        readers = {n.key for n in region.nodes if n.phase is Phase.BACKWARD and self._reads(n, again)}
        wanted = {i for n in region.nodes if n.key in readers for i in n.inputs}
        if not self.early_stop:
            wanted |= {o for n in forward if n.key in again for o in n.outputs}
        clones = _needed(forward, again | {n.key for n in forward if gathers_parameter(region, n)}, wanted)
        return _with_clones(region, clones, readers) if clones else region

    def _reads(self, node: Node, again: set[int]) -> bool:
        """Whether a backward node reads new results. What is kept for other nodes, the own backward reads anew too."""
        return self.policy == "full" or node.forward in again


def _needed(forward: Sequence[Node], again: set[int], wanted: set[int]) -> list[Node]:
    """Return, in order, the nodes to run again so that all that is wanted of them is there."""
    wanted, chosen = set(wanted), list[Node]()
    for node in reversed(forward):
        if node.key in again and wanted.intersection(node.outputs):
            chosen.append(node)
            wanted.update(node.inputs)
    chosen.reverse()
    return chosen


def _attention_core(region: Region, forward: Sequence[Node]) -> set[int]:
    """Keys of fused attention, and of all that lies between one product of two activations and the next."""
    products = _products_of_activations(region, forward)
    inside = [n for n in forward if n.key in products or op_def(n.op).kind not in _PRODUCTS]
    after: set[int] = set()
    for node in inside:
        if node.key in products or after.intersection(node.inputs):
            after.update(node.outputs)
    before: set[int] = set()
    for node in reversed(inside):
        if node.key in products or before.intersection(node.outputs):
            before.update(node.inputs)
    core = {n.key for n in forward if op_def(n.op).kind is OpClass.ATTENTION}
    for node in inside:
        first, last = before.intersection(node.outputs), after.intersection(node.inputs)
        if (first or last) if node.key in products else (first and last):
            core.add(node.key)
    return core


def _products_of_activations(region: Region, forward: Sequence[Node]) -> set[int]:
    weights = {v.id for v in region.of_role(Role.PARAM)}
    for node in forward:
        if node.inputs and weights.issuperset(node.inputs):
            weights.update(node.outputs)
    matmuls = (n for n in forward if op_def(n.op).kind is OpClass.MATMUL)
    return {n.key for n in matmuls if not weights.intersection(n.inputs[:2])}


def _with_clones(region: Region, clones: Sequence[Node], readers: set[int]) -> Region:
    """Put copies of forward nodes in front of the first backward node that reads one of them."""
    fresh = max(v.id for v in region.values) + 1
    new = {o: fresh + k for k, o in enumerate(o for c in clones for o in c.outputs)}
    rest = gathered_once(region, {c.inputs: new[c.key] for c in clones if gathers_parameter(region, c)})
    nodes = [renamed(n, new) if n.key in readers else n for n in rest.nodes]
    first = _first_reader(nodes, set(new.values()))
    made = (*nodes[:first], *(_cloned(c, new) for c in clones), *nodes[first:])
    return replace(region, values=(*rest.values, *(_copy(region.by_id[o], new) for o in new)), nodes=made)


def _cloned(node: Node, new: Mapping[int, int]) -> Node:
    outputs = tuple(new[o] for o in node.outputs)
    return replace(renamed(node, new), outputs=outputs, phase=Phase.RECOMPUTE, forward=node.key)


def _first_reader(nodes: Sequence[Node], new: set[int]) -> int:
    reading = (k for k, n in enumerate(nodes) if new.intersection(n.inputs))
    return next(reading, sum(n.phase is Phase.FORWARD for n in nodes))


def _copy(v: Value, new: Mapping[int, int]) -> Value:
    return replace(v, id=new[v.id], storage=new.get(v.storage, v.storage), saved=False)
