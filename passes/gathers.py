"""Gathers of parameters that lie sharded over replicas: which they are, and how a second one is spared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ..ir.editing.rewriter import RegionRewriter
from ..ir.graph import Node, Phase, Region, Role
from ..ir.ops import Trait, has
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.ops.quantise import QuantiseAttrs
from ..ir.placement import CP, UP
from ..ir.sizes.expr import Expr, total

GatheredParameter: TypeAlias = tuple[int, bool]


def gathers_parameter(region: Region, node: Node) -> bool:
    """Whether a node makes parameters whole that rest in shards (ZeRO stage 3), as they are or quantised before."""
    return has(node, Trait.GATHERS) and all(_parameter(region, i) is not None for i in node.inputs)


def gathered_parameters(region: Region, node: Node) -> tuple[GatheredParameter, ...]:
    """Return the parameters that a node makes whole, in the order of its inputs; empty for any other node.

    With each stands whether it comes as a copy in columns that is none of the one in rows: `QuantiseAttrs.columns`.
    """
    found = (_parameter(region, i) for i in node.inputs) if has(node, Trait.GATHERS) else ()
    names = tuple(found)
    return tuple(i for i in names if i is not None) if None not in names else ()


def casts_parameter(region: Region, node: Node) -> bool:
    """Whether a node quantises the shard of a parameter that is gathered then."""
    gathers = any(has(n, Trait.GATHERS) for o in node.outputs for n in region.users.get(o, ()))
    return has(node, Trait.QUANTISES) and gathers and _parameter(region, node.key) is not None


def _parameter(region: Region, value: int) -> GatheredParameter | None:
    if region.by_id[value].role is Role.PARAM:
        return value, False
    made = region.producer.get(value)
    if made is None or not isinstance(made.attrs, QuantiseAttrs):
        return None
    return (made.inputs[0], made.attrs.columns) if region.by_id[made.inputs[0]].role is Role.PARAM else None


def gathers_sequence(node: Node) -> bool:
    """Whether a node brings the keys and values of other context-parallel ranks: they are never kept."""
    attrs = node.attrs
    return has(node, Trait.GATHERS) and isinstance(attrs, CollectiveAttrs) and {CP, UP}.issuperset(attrs.axis.axes)


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


def gather_once(region: RegionRewriter, held: Mapping[tuple[GatheredParameter, ...], int]) -> None:
    """Erase gathers of later phases whose parameters a value holds whole already; their readers read that.

    `held` names the values by what `gathered_parameters` says of them.
    """
    old = region.region
    later = [n for n in old.nodes if n.phase in (Phase.RECOMPUTE, Phase.BACKWARD)]
    gone = [n for n in later if gathered_parameters(old, n) in held]
    feeding = {i for n in gone for i in n.inputs}
    for node in gone:
        whole = held[gathered_parameters(old, node)]
        for user in region.users(node.key):
            region.rewire(user, {node.key: whole})
        region.move_storage(node.key, whole)
    for node in (*gone, *(n for n in later if n.key in feeding and casts_parameter(old, n))):
        region.erase(node)
