"""Sums over a whole graph, every region as often as it runs."""

from __future__ import annotations

from collections import Counter

from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import work_of
from slipstick.ir.sizes.expr import Expr, total


def flops(graph: Graph, phase: Phase = Phase.FORWARD) -> Expr:
    """Tensor FLOPs of one phase."""
    return total(
        work_of(region, node).tensor_flops * graph.counts[region.name]
        for region in graph.regions
        for node in region.nodes
        if node.phase is phase
    )


def moved_bytes(graph: Graph) -> Expr:
    """Bytes read and written in all phases."""
    return total(
        work_of(region, node).num_bytes * graph.counts[region.name] for region in graph.regions for node in region.nodes
    )


def num_ops(graph: Graph, phase: Phase = Phase.FORWARD) -> Counter[str]:
    """Nodes by op in one phase."""
    found: Counter[str] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            found[node.op] += graph.counts[region.name] * (node.phase is phase)
    return found
