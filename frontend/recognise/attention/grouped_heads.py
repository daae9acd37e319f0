"""Heads of keys and values that were repeated for several heads of queries: back to the tensor with each head once."""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops import Trait
from ....ir.sizes.expr import Dim, divide_exactly, product
from ..look import Look


def each_head_once(look: Look, ident: int, head: int) -> tuple[int, tuple[Dim, ...]]:
    """Return a value, and the dims to read it in, with the repeats of dim `head` taken away.

    Repeats are an expand of a new dim that a reshape then merges into the heads, or one gather with a single input
    (repeat_interleave, tile) that makes that dim longer. A value without repeats comes back as it is.
    """
    base = look.base(ident)
    dims = look.value(base).type.dims
    merged = look.made_by_op(base, Trait.RESHAPES)
    if merged is not None:
        wide = look.made_by_op(look.base(merged.inputs[0]), Trait.EXPANDS)
        found = None if wide is None else _under_expand(look, wide, dims, head)
        if found is not None:
            return found
    longer = look.made_by_op(base, Trait.LOOKS_UP)
    if longer is not None and len(longer.inputs) == 1 and _is_longer(look, longer, head):
        source = longer.inputs[0]
        return source, look.value(source).type.dims
    return base, dims


def _under_expand(look: Look, wide: Node, dims: tuple[Dim, ...], head: int) -> tuple[int, tuple[Dim, ...]] | None:
    """Return the narrow tensor when the expand repeats a dim beside the heads and nothing else."""
    narrow, full = look.value(wide.inputs[0]).type.dims, look.value(wide.key).type.dims
    narrow = (1,) * (len(full) - len(narrow)) + narrow
    repeated = [i for i, (a, b) in enumerate(zip(narrow, full, strict=True)) if a != b]
    if len(repeated) != 1 or repeated[0] not in (head, head + 1):
        return None
    before, behind = full[:head], full[head + 2 :]
    if (*before, product(full[head : head + 2]), *behind) != dims:
        return None
    groups = narrow[head] if repeated[0] == head + 1 else narrow[head + 1]
    return look.base(wide.inputs[0]), (*before, groups, *behind)


def _is_longer(look: Look, node: Node, head: int) -> bool:
    """Whether a node changes one dim alone, to a multiple."""
    short, long = look.value(node.inputs[0]).type.dims, look.value(node.key).type.dims
    if len(short) != len(long) or short[:head] != long[:head] or short[head + 1 :] != long[head + 1 :]:
        return False
    return divide_exactly(long[head], short[head]) is not None


__all__ = ["each_head_once"]
