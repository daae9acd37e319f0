"""Gathers of parameters that lie sharded over replicas: which they are, and how a second one is spared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.expr import Expr, total
from ..ir.graph import Node, Phase, Region, Role
from ..ir.ops.collectives import GATHERS, CollectiveAttrs


def gathers_parameter(region: Region, node: Node) -> bool:
    """Whether a node makes parameters whole that rest in shards (ZeRO stage 3)."""
    return node.op == "all_gather" and all(region.by_id[i].role is Role.PARAM for i in node.inputs)


def gathers_sequence(node: Node) -> bool:
    """Whether a node brings the keys and values of other context-parallel ranks: they are never kept."""
    attrs = node.attrs
    return node.op in GATHERS and isinstance(attrs, CollectiveAttrs) and set(attrs.axes) <= {"cp", "up"}


def held_gathered(region: Region) -> Expr:
    """Return the bytes of parameters that stay gathered: over a micro-batch, where marked as saved, or over a step.

    What is saved counts in `Region.saved_bytes` too.
    """
    return saved_gathered(region) + total(
        region.by_id[o].type.num_bytes for n in region.nodes if n.phase is Phase.PREPARE for o in n.outputs
    )


def saved_gathered(region: Region) -> Expr:
    """Return the bytes of gathered parameters among what is kept for the backward phase."""
    gathers = (n for n in region.nodes if gathers_parameter(region, n))
    values = (region.by_id[o] for n in gathers for o in n.outputs)
    return total(v.type.num_bytes for v in values if v.saved)


def gathered_once(region: Region, held: Mapping[tuple[int, ...], int]) -> Region:
    """Drop gathers of later phases whose parameters a value holds whole already; their readers read that."""
    gone = {
        n.key: held[n.inputs]
        for n in region.nodes
        if n.phase in (Phase.RECOMPUTE, Phase.BACKWARD) and n.inputs in held and gathers_parameter(region, n)
    }
    values = (replace(v, storage=gone.get(v.storage, v.storage)) for v in region.values if v.id not in gone)
    nodes = (renamed(n, gone) for n in region.nodes if n.key not in gone)
    return replace(region, values=tuple(values), nodes=tuple(nodes))


def renamed(node: Node, names: Mapping[int, int]) -> Node:
    """Return the node with some of its inputs replaced."""
    return replace(node, inputs=tuple(names.get(i, i) for i in node.inputs))
