"""One node of a sharded graph: do the placements of what it makes follow from those of what it reads?"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.graph import Node, Region
from ...ir.ops import OpCall, Trait, has, index_map_of
from ...ir.placement import REPLICATE, MeshAxis, Partial, Placement
from .conversions import (
    complaints,
    copies_complaints,
    is_collective,
    is_shard_taken,
    is_summand,
    shard_complaints,
    summand_complaints,
)


def is_conversion(region: Region, node: Node) -> bool:
    """Whether a node moves what there is, and computes nothing of the model."""
    return is_collective(node) or is_shard_taken(region, node) or is_summand(region, node)


def node_complaints(region: Region, node: Node, call: OpCall) -> Iterator[str]:
    """Yield what is wrong with a node's placements; `call` has the types that its law looks at."""
    if is_collective(node):
        yield from complaints(region, node)
    elif is_shard_taken(region, node):
        yield from shard_complaints(region, node)
    elif is_summand(region, node):
        yield from summand_complaints(region, node)
    else:
        yield from copies_complaints(region, node)
        for axis in (a for a, _ in region.by_id[node.key].placements):
            given, made = along(region, node, axis)
            if not follows(call, axis, given, made):
                lies = f"{', '.join(map(str, given))} -> {', '.join(map(str, made))}"
                yield f"over {axis} no entry of '{node.op}' is {lies}"


def along(region: Region, node: Node, axis: MeshAxis) -> tuple[tuple[Placement, ...], tuple[Placement, ...]]:
    """Return how inputs and outputs of a node lie along one axis."""
    given, made = ([region.by_id[i].placement(axis) for i in ids] for ids in (node.inputs, node.outputs))
    # A value without a placement comes from a pass that made it for this rank alone: whole.
    return tuple(p or REPLICATE for p in given), tuple(p or REPLICATE for p in made)


def follows(call: OpCall, axis: MeshAxis, given: tuple[Placement, ...], made: tuple[Placement, ...]) -> bool:
    """Whether outputs that lie as said follow from inputs that lie as said, by the op's index map."""
    if has(call, Trait.UPDATES):
        return update_fits(given, made)
    if has(call, Trait.TO_HOST, Trait.FROM_HOST):
        return given == made
    index_map = index_map_of(call, axis)
    if index_map is None:
        return all(p == REPLICATE for p in (*given, *made))
    return index_map.fits(given, made)


def update_fits(given: tuple[Placement, ...], made: tuple[Placement, ...]) -> bool:
    """Whether each parameter lies as its gradient and its result do, none of them a partial sum."""
    half = len(given) // 2
    pairs = zip(given[:half], given[half:], made, strict=True)
    return all(p == g == o and not isinstance(p, Partial) for p, g, o in pairs)
