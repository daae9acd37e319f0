"""Which dims of a node's tensors are the same dim: labels, alike where a dim is handed on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TypeAlias

from ...ir.graph import Node, Phase, Region
from ...ir.ops import OpCall, Trait, call_of, has, index_map_of
from ...ir.ops.index_map import name_of
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.placement import TP

Label: TypeAlias = tuple[object, ...] | None
Labels: TypeAlias = tuple[tuple[Label, ...], ...]
Spot: TypeAlias = tuple[int, int]  # a value of a region and one of its dims


def same_dims(region: Region, node: Node, spot: Spot) -> Iterable[Spot]:
    """Yield the dims of other tensors of a node that are the dim of one of its tensors."""
    ids = (*node.inputs, *node.outputs)
    labels = labels_of(call_of(region, node))
    wanted = {ls[spot[1]] for i, ls in zip(ids, labels, strict=True) if i == spot[0]} - {None}
    for i, ls in zip(ids, labels, strict=True):
        yield from ((i, dim) for dim, label in enumerate(ls) if label in wanted)


def is_cut_apart(region: Region, node: Node) -> bool:
    """Whether what a slice takes out of a dim is cut into pieces again along it, here or behind what hands it on."""
    assert isinstance(node.attrs, SliceAttrs)
    return not node.attrs.drop and _is_sliced_behind(region, (node.key, node.attrs.dim), tuple(Phase))


def has_packed_channels(region: Region, node: Node) -> bool:
    """Whether the channels (dim 1) of a convolution's result are those of several tensors, sliced out behind it.

    Mamba-2 convolves x, B and C side by side; Mamba-1, and a gated short convolution, one tensor.
    """
    return _is_sliced_behind(region, (node.key, 1), (Phase.FORWARD,))


def _is_sliced_behind(region: Region, spot: Spot, phases: Collection[Phase]) -> bool:
    size = region.by_id[spot[0]].type.dims[spot[1]]
    todo, seen = [spot], {spot}
    while todo:
        value, dim = todo.pop()
        for user in (n for n in region.users.get(value, ()) if n.phase in phases):
            if has(user, Trait.TAKES_RANGE) and isinstance(user.attrs, SliceAttrs) and user.attrs.dim == dim:
                return True
            for spot in same_dims(region, user, (value, dim)):
                if spot[0] in user.outputs and spot not in seen and region.by_id[spot[0]].type.dims[spot[1]] == size:
                    seen.add(spot)
                    todo.append(spot)
    return False


# Regions are walked from many nodes, on each axis.
@lru_cache(maxsize=8192)
def labels_of(call: OpCall) -> Labels:
    """Return a label for each dim of each input and output: its outermost factor and its size; None for one entry.

    Dims of another size are others, as heads of queries and of keys are; a view alone makes one dim of two sizes.
    """
    kinds, index_map = (*call.inputs, *call.outputs), index_map_of(call, TP)
    if index_map is None:  # What moves data hands dims on as they are.
        return tuple(tuple((t.rank - i, d) if d != 1 else None for i, d in enumerate(t.dims)) for t in kinds)
    is_view = has(call, Trait.RESHAPES)
    return tuple(
        tuple(
            (name_of(dim[0]), 0 if is_view else d) if dim and d != 1 else None for dim, d in zip(t, k.dims, strict=True)
        )
        for t, k in zip(index_map.tensors, kinds, strict=True)
    )
