"""Rotary embedding in single steps to `rope`: by a rotated copy, half by half, or as complex numbers."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.ops import Trait, has
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.ops.tensors.pointwise import broadcast
from ...ir.sizes.expr import Dim, as_dim, as_expr
from .rewrite import UNCHANGED, Draft, Look, fn_of

_JOINS = (Trait.JOINS, Trait.LOOKS_UP)


def rope_by_copy(look: Look, node: Node) -> Draft | None:
    """Find x cos + rotated(x) sin, where rotated(x) is (-second part, first part) of x."""
    if fn_of(node) != "add" or len(node.inputs) != 2:
        return None
    for left, right in (node.inputs, node.inputs[::-1]):
        straight, turned = look.made_by(look.base(left), "mul"), look.made_by(look.base(right), "mul")
        if straight is None or turned is None or len(straight.inputs) != 2 or len(turned.inputs) != 2:
            continue
        for copy, sin in (turned.inputs, turned.inputs[::-1]):
            found = _rotated(look, copy)
            if found is None:
                continue
            x, inside = found
            cos = [i for i in straight.inputs if look.base(i) != x]
            if len(cos) == 1 and look.is_closed((straight, turned, *inside), node):
                return _rope(look, node, x, cos[0], sin)
    return None


def rope_by_parts(look: Look, node: Node) -> Draft | None:
    """Find (x1 cos - x2 sin, x2 cos + x1 sin) side by side, or pair by pair."""
    if not has(node, *_JOINS) or len(node.inputs) != 2:
        return None
    low, high = (look.made_by(look.behind(i, *UNCHANGED, Trait.RESHAPES), "sub", "add") for i in node.inputs)
    if low is None or high is None or (fn_of(low), fn_of(high)) != ("sub", "add"):
        return None
    products = [look.made_by(look.base(i), "mul") for n in (low, high) for i in n.inputs]
    given = [() if p is None else p.inputs for p in products]
    if [len(g) for g in given] != [2] * 4:
        return None
    found = _parts(look, given)
    if found is None:
        return None
    x, cos, sin = found
    inside = (low, high, *(p for p in products if p is not None))
    return _rope(look, node, x, cos, sin) if look.is_closed(inside, node) else None


def rope_by_complex(look: Look, node: Node) -> Draft | None:
    """Find pairs of x as complex numbers, times a table of complex numbers, and back to one dim."""
    if not has(node, Trait.RESHAPES):
        return None
    product = look.made_by(node.inputs[0], "mul")
    if product is None or len(product.inputs) != 2 or "complex" not in look.said(product).name:
        return None
    for pairs, table in (product.inputs, product.inputs[::-1]):
        split = look.made_by_op(pairs, Trait.RESHAPES)
        if split is None or look.value(split.inputs[0]).type.dims != look.value(node.key).type.dims:
            continue
        x = look.base(split.inputs[0])
        if look.is_closed((product,), node):
            return _complex_rope(look, node, x, table)
    return None


def _complex_rope(look: Look, node: Node, x: int, table: int) -> Draft | None:
    kind = look.value(x).type
    root = look.ending(node, kind.dtype)
    if look.value(root.key).type != kind:
        return None
    draft = Draft(look, root)
    pairs = look.value(table).type
    half = pairs.with_dims(pairs.dims[:-1])
    last = pairs.rank - 1
    cos, sin = (draft.add("slice", (table,), [half], SliceAttrs(last, k, drop=True)) for k in (0, 1))
    draft.add("rope", (x, cos, sin), [kind])
    return draft


def _parts(look: Look, given: list[tuple[int, ...]]) -> tuple[int, int, int] | None:
    """Return x, cos and sin of the products x1 cos, x2 sin; x2 cos, x1 sin (or x1 sin, x2 cos)."""
    for first, cos in (given[0], given[0][::-1]):
        for second, sin in (given[1], given[1][::-1]):
            want = [{first, sin}, {second, cos}]
            same = [set(given[2]), set(given[3])]
            if want not in (same, same[::-1]):
                continue
            x = _whole(look, first, second)
            if x is not None:
                return x, cos, sin
    return None


def _rotated(look: Look, ident: int) -> tuple[int, tuple[Node, ...]] | None:
    """Return x of (-second part of x, first part of x), and the nodes that move data."""
    join = look.made_by_op(look.behind(ident, *UNCHANGED, Trait.RESHAPES), *_JOINS)
    if join is None or len(join.inputs) != 2:
        return None
    minus = look.made_by(look.behind(join.inputs[0], *UNCHANGED, Trait.RESHAPES), "neg", "mul")
    if minus is None or len(operands := look.operands(minus)) != 1:
        return None
    x = _whole(look, look.behind(join.inputs[1], Trait.RESHAPES), operands[0])
    return None if x is None else (x, (join, minus))


def _whole(look: Look, first: int, second: int) -> int | None:
    """Return the value whose two parts these are: its halves, or the first and second of each pair."""
    a, b = (look.made_by_op(look.base(i), Trait.TAKES_RANGE, Trait.LOOKS_UP) for i in (first, second))
    if a is None or b is None or a.inputs[0] != b.inputs[0] or a.op != b.op:
        return None
    source = look.base(a.inputs[0])
    if not isinstance(a.attrs, SliceAttrs) or not isinstance(b.attrs, SliceAttrs):
        return source if has(a, Trait.LOOKS_UP) else None
    return _under_pairs(look, source) if a.attrs.drop else _of_halves(look, source, a.attrs, b.attrs, first)


def _of_halves(look: Look, source: int, a: SliceAttrs, b: SliceAttrs, first: int) -> int | None:
    size: Dim = look.value(first).type.dims[a.dim]
    halves = a.dim == b.dim and a.start == 0 and b.start == size
    return source if halves and look.value(source).type.dims[a.dim] == as_dim(as_expr(size) * 2) else None


def _under_pairs(look: Look, source: int) -> int | None:
    split = look.made_by_op(source, Trait.RESHAPES)
    return None if split is None or look.value(source).type.dims[-1] != 2 else look.base(split.inputs[0])


def _rope(look: Look, node: Node, x: int, cos: int, sin: int) -> Draft | None:
    """One rotation; what joined pairs comes back in the dims of the join."""
    kind, out = look.value(x).type, look.value(node.key).type
    if any(broadcast(_fitting(kind.dims, look.value(t).type.dims), kind.dims) != kind.dims for t in (cos, sin)):
        return None
    root = look.ending(node, kind.dtype)
    out = look.value(root.key).type
    draft = Draft(look, root)
    made = draft.add("rope", (x, cos, sin), [type(kind)(kind.dims, out.dtype)])
    if kind.dims != out.dims:
        draft.add("reshape", (made,), [out])
    return draft


def _fitting(dims: tuple[Dim, ...], table: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """A table of half the width serves both parts."""
    full, half = dims[-1], table[-1] if table else 1
    return (*table[:-1], full) if as_expr(half) * 2 == full else table
