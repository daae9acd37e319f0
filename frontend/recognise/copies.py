"""Moves of data that are none: dims of size one turned about, results in the order that follows, caches that grow."""

from __future__ import annotations

from ...ir.graph import Node, Role
from ...ir.ops import Trait, has
from ...ir.ops.fused.attention import KvAppendAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs
from .look import Look
from .rewrite import Draft

_MANY = 5


def turned_ones(look: Look, node: Node) -> Draft | None:
    """A permutation among whose five or more dims are some of size one, as einsum makes them: of the others alone."""
    if not isinstance(node.attrs, PermuteAttrs) or len(node.attrs.dims) < _MANY:
        return None
    source = look.value(node.inputs[0]).type.dims
    real = [d for d, size in enumerate(source) if size != 1]
    if len(real) == len(source):
        return None
    draft = Draft(look, node)
    narrow = draft.view("reshape", node.inputs[0], tuple(source[d] for d in real))
    order = tuple(real.index(d) for d in node.attrs.dims if d in real)
    if order != tuple(range(len(order))):
        narrow = draft.view("permute", narrow, tuple(source[real[d]] for d in order), PermuteAttrs(order))
    draft.view("reshape", narrow, look.value(node.key).type.dims)
    return draft


def result_in_order(look: Look, node: Node) -> Draft | None:
    """A copy of attention's result as it comes out: the kernel writes it so."""
    made = look.producer.get(node.inputs[0]) if has(node, Trait.COPIES) else None
    if made is None or not has(made, Trait.ATTENDS, backward=False):
        return None
    kind = look.value(node.key).type
    if look.value(node.inputs[0]).type != kind:
        return None
    draft = Draft(look, node)
    draft.add("reshape", node.inputs, [kind])
    return draft


def growing_cache(look: Look, node: Node) -> Draft | None:
    """A cache with new tokens side by side: these are written behind it."""
    if not isinstance(node.attrs, ConcatAttrs) or len(node.inputs) != 2:
        return None
    if look.value(node.inputs[0]).role is not Role.CACHE:
        return None
    draft = Draft(look, node)
    draft.add("kv_append", node.inputs, [look.value(node.key).type], KvAppendAttrs(node.attrs.dim))
    return draft


__all__ = ["growing_cache", "result_in_order", "turned_ones"]
