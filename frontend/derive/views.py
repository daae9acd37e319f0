"""Backward of views and of what moves data: each a move the other way, sums where something was read twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.errors import UnsupportedOpError
from ...ir.graph import Node
from ...ir.ops import Trait, has
from ...ir.ops.tensors.images import WindowAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ...ir.ops.tensors.lookup import LookupAttrs, lookup_of, spec_of
from ...ir.ops.tensors.normalize import DimAttrs
from ...ir.sizes.expr import Dim, as_dim, as_expr, divide_exactly, product
from ...ir.types import TensorType
from .tape import Grads, Rule, Tape


def passed_on(tape: Tape, node: Node, grads: Grads) -> None:
    """A cast, a copy, an expand, another name: the same gradient, in the type and the dims of the input."""
    tape.give(node.inputs[0], grads.first)


def reshape(tape: Tape, node: Node, grads: Grads) -> None:
    """The same entries in the dims of the input."""
    tape.give(node.inputs[0], tape.reshape(grads.first, tape.type(node.inputs[0]).dims))


def permute(tape: Tape, node: Node, grads: Grads) -> None:
    """The dims back in their order."""
    assert isinstance(node.attrs, PermuteAttrs)
    order = tuple(node.attrs.dims.index(d) for d in range(len(node.attrs.dims)))
    tape.give(node.inputs[0], tape.permute(grads.first, order))


def slice_(tape: Tape, node: Node, grads: Grads) -> None:
    """The range among zeros; ranges that make up the whole tensor come side by side, once, at the first of them."""
    together = tape.siblings.get(node.key, ())
    source = node.inputs[0]
    if not together:
        tape.give(source, tape.emit("pad", (grads.first,), [tape.type(source)], node.attrs)[0])
    elif node.key == together[0].key:
        tape.give(source, _side_by_side(tape, together, tape.type(source)))


def _side_by_side(tape: Tape, together: Sequence[Node], whole: TensorType) -> int:
    first = _range(together[0])
    parts = [tape.grads[n.key] if n.key in tape.grads else tape.zeros(tape.type(n.key)) for n in together]
    if first.drop:
        piece = (*whole.dims[: first.dim], 1, *whole.dims[first.dim + 1 :])
        parts = [tape.reshape(part, piece) for part in parts]
    return tape.emit("concat", parts, [whole], ConcatAttrs(first.dim))[0]


def partitions(nodes: Sequence[Node], types: Mapping[int, TensorType]) -> Mapping[int, tuple[Node, ...]]:
    """Return, by node key, slices written one after another that are all of a tensor from its start to its end."""
    found: dict[int, tuple[Node, ...]] = {}
    row: list[Node] = []
    for node in nodes:
        row = [*row, node] if row and _continues(row, node, types) else _opened(node)
        if row and _end(row[-1], types) == types[row[0].inputs[0]].dims[_range(row[0]).dim] and len(row) > 1:
            found.update(dict.fromkeys((n.key for n in row), tuple(row)))
    return found


def _opened(node: Node) -> list[Node]:
    return [node] if has(node, Trait.TAKES_RANGE) and _range(node).start == 0 else []


def _continues(row: Sequence[Node], node: Node, types: Mapping[int, TensorType]) -> bool:
    if not has(node, Trait.TAKES_RANGE) or node.inputs != row[0].inputs:
        return False
    first, own = _range(row[0]), _range(node)
    return (first.dim, first.drop) == (own.dim, own.drop) and as_expr(own.start) == _end(row[-1], types)


def _end(node: Node, types: Mapping[int, TensorType]) -> Dim:
    own = _range(node)
    return as_dim(as_expr(own.start) + (1 if own.drop else types[node.key].dims[own.dim]))


def _range(node: Node) -> SliceAttrs:
    assert isinstance(node.attrs, SliceAttrs)
    return node.attrs


def pad(tape: Tape, node: Node, grads: Grads) -> None:
    """The range that was placed among zeros."""
    tape.give(node.inputs[0], tape.emit("slice", (grads.first,), [tape.type(node.inputs[0])], node.attrs)[0])


def concat(tape: Tape, node: Node, grads: Grads) -> None:
    """Each input gets its range of the gradient."""
    assert isinstance(node.attrs, ConcatAttrs)
    dim, start = node.attrs.dim, as_expr(0)
    for i in node.inputs:
        kind = tape.type(i).dims
        if i in tape.needs:
            out = tape.type(grads.first).with_dims(kind)
            tape.give(i, tape.emit("slice", (grads.first,), [out], SliceAttrs(dim, as_dim(start)))[0])
        start = start + kind[dim]


def gather(tape: Tape, node: Node, grads: Grads) -> None:
    """Entries at indices: added up where they came from; entries repeated or in another order: summed or put back."""
    source = node.inputs[0]
    if len(node.inputs) == 1:
        _unrepeat(tape, node, grads.first)
        return
    if any(tape.type(i).dtype.is_floating for i in node.inputs[1:]):
        raise UnsupportedOpError(f"no backward rule for a 'gather' of {len(node.inputs)} tensors ({_where(node)})")
    base = tape.zeros(tape.type(source))
    letters = _letters(node)
    attrs = lookup_of([letters[0], *letters[1:-1], letters[-1], letters[0]], adds=True) if letters else LookupAttrs()
    tape.give(source, tape.emit("scatter", (base, *node.inputs[1:], grads.first), [tape.type(source)], attrs)[0])


def _letters(node: Node) -> tuple[str, ...]:
    assert isinstance(node.attrs, LookupAttrs)
    return node.attrs.letters


def _unrepeat(tape: Tape, node: Node, grad: int) -> None:
    """Entries in another order come back in theirs; repeats of dims are summed; windows add to what they looked at."""
    kind, wide = tape.type(node.inputs[0]), tape.type(grad)
    if product(kind.dims) == product(wide.dims):
        letters = _letters(node)
        attrs = lookup_of(letters[::-1]) if letters else LookupAttrs()
        tape.give(node.inputs[0], tape.emit("gather", (grad,), [kind], attrs)[0])
        return
    times = [divide_exactly(b, a) for a, b in zip(kind.dims, wide.dims, strict=False)]
    if kind.rank != wide.rank or not _letters(node):
        raise UnsupportedOpError(f"no backward rule for a 'gather' that repeats {kind} to {wide} ({_where(node)})")
    if None not in times:
        for at, factor in enumerate(times):
            grad = grad if factor in (None, 1) else _summed(tape, grad, at, kind.dims[at], as_dim(factor))
        tape.give(node.inputs[0], grad)
        return
    windows = WindowAttrs("windows", spec_of(*([word] for word in _letters(node)[::-1])))
    tape.give(node.inputs[0], tape.emit("window_bwd", (grad,), [kind], windows)[0])


def _summed(tape: Tape, grad: int, at: int, size: Dim, times: Dim) -> int:
    """Repeats of the entries of a dim, added up."""
    wide = tape.type(grad)
    apart = tape.reshape(grad, (*wide.dims[:at], size, times, *wide.dims[at + 1 :]))
    narrow = wide.with_dims((*wide.dims[:at], size, 1, *wide.dims[at + 1 :]))
    return tape.reshape(tape.fitted(apart, narrow), (*wide.dims[:at], size, *wide.dims[at + 1 :]))


def scatter(tape: Tape, node: Node, grads: Grads) -> None:
    """The base keeps the gradient of what was not written over; what was written reads its own back."""
    base, *indices, source = node.inputs
    letters = _letters(node)
    kept, read = LookupAttrs(), LookupAttrs()
    if letters:
        kept = lookup_of([letters[0], *letters[1:-2], letters[-1]])
        read = lookup_of([letters[-1], *letters[1:-2], letters[-2]])
    if base in tape.needs:
        tape.give(base, tape.emit("scatter", (grads.first, *indices), [tape.type(base)], kept)[0])
    if source in tape.needs:
        tape.give(source, tape.emit("gather", (grads.first, *indices), [tape.type(source)], read)[0])


def chosen(tape: Tape, node: Node, grads: Grads) -> None:
    """Backward of top-k and sort: values go back to where their indices say."""
    assert isinstance(node.attrs, DimAttrs)
    source, along = node.inputs[0], node.attrs.dim
    base, whole = tape.zeros(tape.type(source)), tuple(range(tape.type(source).rank))
    at = tuple("at" if d == along else d for d in whole)
    attrs = lookup_of([whole, at, at, whole])
    tape.give(source, tape.emit("scatter", (base, node.outputs[1], grads.first), [tape.type(source)], attrs)[0])


def embedding(tape: Tape, node: Node, grads: Grads) -> None:
    """Rows added up where they were looked up."""
    ids, table = node.inputs
    tape.give(table, tape.emit("embedding_bwd", (grads.first, ids), [tape.type(table)])[0])


def _where(node: Node) -> str:
    return f"module '{node.scope}'" if node.scope else "the top module"


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("cast", "copy", "expand", "identity"), passed_on),
    "reshape": reshape,
    "permute": permute,
    "slice": slice_,
    "pad": pad,
    "concat": concat,
    "gather": gather,
    "scatter": scatter,
    "topk": chosen,
    "sort": chosen,
    "embedding": embedding,
}
