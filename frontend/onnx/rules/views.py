"""Operators that only look at a tensor another way, or move it: reshape, transpose, slice, split, concat, pad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ....ir.errors import NotUnderstoodError
from ....ir.graph import Role
from ....ir.ops.fused.attention import KvAppendAttrs
from ....ir.ops.tensors.pointwise import broadcast
from ....ir.sizes.expr import Dim, Expr, as_dim, as_expr, divide_exactly, total
from ....ir.types import TensorType
from ..call import Call, Rule, axis_of, numel
from ..shapes.items import Item, checked_dims


def known_dims(call: Call, index: int) -> list[Dim]:
    """Return an input that lists sizes or places."""
    found = call.known(index).reshape(-1).tolist()
    if any(not isinstance(d, int | Expr) for d in found):
        raise NotUnderstoodError(f"input {index} holds {found}, which are no sizes")
    return found


def _reshape(call: Call) -> Sequence[Item]:
    source, wanted = call.item(0), known_dims(call, 1)
    if len(wanted) > 12:
        raise NotUnderstoodError(f"Reshape to {len(wanted)} dims")
    if not call.int_("allowzero", 0):
        wanted = [_kept(source.dims, i) if d == 0 else d for i, d in enumerate(wanted)]
    return (call.reshape(source, reshaped(source.dims, wanted)),)


def _kept(dims: Sequence[Dim], index: int) -> Dim:
    if index >= len(dims):
        raise NotUnderstoodError(f"Reshape keeps dim {index} of a tensor of {len(dims)} dims")
    return dims[index]


def reshaped(dims: Sequence[Dim], wanted: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the target of a reshape with its one -1 resolved.

    >>> reshaped((2, 3, 4), (6, -1))
    (6, 4)
    """
    unknown = [i for i, d in enumerate(wanted) if d == -1]
    if len(unknown) > 1:
        raise NotUnderstoodError(f"Reshape to {list(wanted)}: two unknown dims")
    checked_dims(tuple(d for d in wanted if d != -1), "the target of Reshape")
    left, right = _without_common(dims, [d for d in wanted if d != -1])
    rest = quotient(numel(left), numel(right))
    if rest is None or (not unknown and rest != 1):
        raise NotUnderstoodError(f"{_join(dims)} does not reshape to {_join(wanted)}")
    return tuple(rest if d == -1 else d for d in wanted)


def _without_common(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    left, right = list(a), []
    for d in b:
        if d != 0 and d in left:
            left.remove(d)
        else:
            right.append(d)
    return left, right


def quotient(a: Dim, b: Dim) -> Dim | None:
    """Return a / b when it is whole, also by a sum: (kv + 1) * 8 over kv + 1 is 8; zero over zero is one."""
    if b == 0:
        return 1 if a == 0 else None
    found = divide_exactly(a, b)
    if found is not None or not isinstance(b, Expr) or len(b.terms) < 2:
        return found
    rest, total = as_expr(a), as_expr(0)
    head = Expr(dict(b.terms[-1:]))
    for _ in range(16):
        if rest == 0:
            return as_dim(total)
        step = divide_exactly(Expr(dict(rest.terms[-1:])), head)
        if step is None:
            return None
        total, rest = total + step, rest - b * step
    return None


def _join(dims: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _flatten(call: Call) -> Sequence[Item]:
    dims = call.dims(0)
    axis = call.int_("axis", 1)
    at = axis + len(dims) if axis < 0 else axis
    if not 0 <= at <= len(dims):
        raise NotUnderstoodError(f"axis {axis} of a tensor of {len(dims)} dims")
    return (call.reshape(call.item(0), (numel(dims[:at]), numel(dims[at:]))),)


def axes_of(call: Call, index: int, rank: int) -> list[int]:
    """Return the axes that an input lists, counted from the front; they are an input from opset 13 on."""
    return [axis_of(int(str(a)), rank) for a in known_dims(call, index)]


def _squeeze(call: Call) -> Sequence[Item]:
    dims = call.dims(0)
    gone = axes_of(call, 1, len(dims)) if call.has(1) else [i for i, d in enumerate(dims) if d == 1]
    if any(dims[a] != 1 for a in gone):
        raise NotUnderstoodError(f"Squeeze of dims {gone} of {_join(dims)}, which are not 1")
    return (call.reshape(call.item(0), tuple(d for i, d in enumerate(dims) if i not in gone)),)


def _unsqueeze(call: Call) -> Sequence[Item]:
    dims = call.dims(0)
    given = [int(str(a)) for a in known_dims(call, 1)]
    rank = len(dims) + len(given)
    axes = {axis_of(a, rank) for a in given}
    if len(axes) != len(given):
        raise NotUnderstoodError(f"Unsqueeze names an axis twice: {given}")
    rest = iter(dims)
    return (call.reshape(call.item(0), tuple(1 if i in axes else next(rest) for i in range(rank))),)


def _transpose(call: Call) -> Sequence[Item]:
    rank = call.item(0).type.rank
    order = call.ints("perm")
    order = tuple(reversed(range(rank))) if order is None else order
    if sorted(order) != list(range(rank)):
        raise NotUnderstoodError(f"perm {list(order)} of a tensor of {rank} dims")
    item = call.item(0)
    if item.packed is not None and order == (1, 0):
        turned = replace(item.packed, turned=not item.packed.turned)
        return (Item(item.type.with_dims(item.dims[::-1]), packed=turned),)
    return (call.permute(item, order),)


def _expand(call: Call) -> Sequence[Item]:
    source, wanted = call.item(0), tuple(known_dims(call, 1))
    dims = broadcast(source.dims, checked_dims(wanted, "the target of Expand"))
    if dims is None:
        raise NotUnderstoodError(f"{_join(source.dims)} does not expand to {_join(wanted)}")
    return (call.expand(source, dims),)


def _slice(call: Call) -> Sequence[Item]:
    item = call.item(0)
    starts, ends = known_dims(call, 1), known_dims(call, 2)
    axes = known_dims(call, 3) if call.has(3) else list(range(len(starts)))
    steps = known_dims(call, 4) if call.has(4) else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        item = _range_of(call, item, axis_of(int(str(axis)), item.type.rank), start, end, step)
    return (item,)


def _range_of(call: Call, item: Item, axis: int, start: Dim, end: Dim, step: Dim) -> Item:
    size = item.dims[axis]
    if not isinstance(step, int) or step == 0:
        raise NotUnderstoodError(f"Slice with step {step}")
    if step < 0:
        return _strided(call, item, axis, _backward_length(start, end, step, size))
    first, last = _clipped(call, start, size), _clipped(call, end, size)
    length = as_dim(as_expr(last) - first)
    if isinstance(length, int):
        length = max(0, -(-length // step))
        return call.slice(item, axis, first, length) if step == 1 else _strided(call, item, axis, length)
    found = divide_exactly(length, step)
    if found is None:
        raise NotUnderstoodError(f"Slice of {length} with step {step}: not a whole number for all sizes")
    return call.slice(item, axis, first, length) if step == 1 else _strided(call, item, axis, found)


def _backward_length(start: Dim, end: Dim, step: int, size: Dim) -> Dim:
    if step == -1 and start == -1 and isinstance(end, int) and end < -(2**30):
        return size
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(size, int)):
        raise NotUnderstoodError(f"Slice backwards from {start} to {end} of {size}")
    return len(range(*slice(start, end, step).indices(size)))


def _strided(call: Call, item: Item, axis: int, length: Dim) -> Item:
    """Every k-th entry or the reverse is a copy."""
    return call.regrown(item, (*item.dims[:axis], length, *item.dims[axis + 1 :]), changed=(axis,))


def _clipped(call: Call, place: Dim, size: Dim) -> Dim:
    """Return a place in a dim: counted from the end where negative, never behind the end."""
    if isinstance(place, int) and place < 0:
        back = as_dim(as_expr(size) + place)
        return 0 if isinstance(back, int) and back < 0 else back
    if isinstance(place, Expr) and all(c < 0 for _, c in place.terms):
        return as_dim(as_expr(size) + place)
    if place == size:
        return size
    if isinstance(place, int) and place > 2**30:
        return size
    return size if call.build.is_less(size, place) else place


def _split(call: Call) -> Sequence[Item]:
    item = call.item(0)
    axis = call.axis(item.type.rank, 0)
    sizes = known_dims(call, 1) if call.has(1) else _even(call, item.dims[axis])
    if as_dim(total(sizes)) != item.dims[axis]:
        raise NotUnderstoodError(f"Split of {item.dims[axis]} into {_join(sizes)}")
    pieces: list[Item] = []
    start: Dim = 0
    if item.content is not None and all(isinstance(s, int) for s in sizes):
        return _known_pieces(item, axis, [s for s in sizes if isinstance(s, int)])
    for size in sizes:
        pieces.append(call.slice(item, axis, start, size))
        start = as_dim(as_expr(start) + size)
    return pieces


def _known_pieces(item: Item, axis: int, sizes: Sequence[int]) -> list[Item]:
    """Cut known numbers apart."""
    assert item.content is not None
    pieces = np.split(item.content, np.cumsum(sizes)[:-1].tolist(), axis=axis)
    return [Item(item.type.with_dims(tuple(p.shape)), content=p) for p in pieces]


def _even(call: Call, size: Dim) -> list[Dim]:
    number = call.int_("num_outputs", len(call.node.output))
    if not 0 < number <= 4096:
        raise NotUnderstoodError(f"Split into {number} pieces")
    piece = divide_exactly(size, number)
    if piece is not None:
        return [piece] * number
    if not isinstance(size, int):
        raise NotUnderstoodError(f"Split of {size} into {number} equal pieces")
    each = -(-size // number)
    return [max(0, min(each, size - k * each)) for k in range(number)]


def _concat(call: Call) -> Sequence[Item]:
    items = [i for i in call.inputs if i is not None]
    if not items or not items[0].dims:
        raise NotUnderstoodError("Concat needs tensors of one dim or more")
    axis = call.axis(items[0].type.rank)
    if len(items) == 2 and (appended := _appended(call, items[0], items[1], axis)) is not None:
        return (appended,)
    return (call.concat([i for i in items if i.dims[min(axis, i.type.rank - 1)] != 0] or items[:1], axis),)


def _appended(call: Call, past: Item, new: Item, axis: int) -> Item | None:
    """New keys or values behind those that earlier steps cached."""
    found = None if past.value is None else call.build.flat.values[past.value]
    if found is None or past.type.rank != new.type.rank or new.type.rank < 3:
        return None
    if found.role is not Role.CACHE and not call.build.is_cache_input(found):
        return None
    return append(call, past, new, axis, "values" if "val" in found.name.lower() else "keys")


def append(call: Call, past: Item | None, new: Item, axis: int, what: str) -> Item:
    """Write new entries behind a cache, which may be empty; the cache itself is not copied."""
    attrs = KvAppendAttrs(axis)
    if past is None or past.dims[axis] == 0:
        return call.emit("kv_append", [new], [new.type], attrs, share=0)[0]
    held = call.value(past)
    call.build.as_cache(held, what)
    total = as_dim(as_expr(past.dims[axis]) + new.dims[axis])
    kind = TensorType((*past.dims[:axis], total, *past.dims[axis + 1 :]), past.type.dtype)
    return call.emit("kv_append", [past, new], [kind], attrs, share=0)[0]


def _tile(call: Call) -> Sequence[Item]:
    item, times = call.item(0), known_dims(call, 1)
    if len(times) != item.type.rank:
        raise NotUnderstoodError(f"Tile of {item.type} by {_join(times)}")
    dims = tuple(as_dim(as_expr(d) * t) for d, t in zip(item.dims, times, strict=True))
    return (item if dims == item.dims else call.regrown(item, dims),)


def _pad(call: Call) -> Sequence[Item]:
    item, pads = call.item(0), known_dims(call, 1)
    rank = item.type.rank
    axes = axes_of(call, 3, rank) if call.has(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        raise NotUnderstoodError(f"Pad of {len(axes)} axes by {len(pads)} numbers")
    dims = list(item.dims)
    for k, axis in enumerate(axes):
        dims[axis] = as_dim(as_expr(dims[axis]) + pads[k] + pads[k + len(axes)])
    return (item if tuple(dims) == item.dims else call.copied("copy", item, tuple(dims)),)


def _identity(call: Call) -> Sequence[Item | None]:
    """Dropout outside training and the like; a mask that nobody reads is not made."""
    return (call.item(0), *(None for _ in call.node.output[1:]))


def _depth_to_space(call: Call) -> Sequence[Item]:
    if call.item(0).type.rank != 4:
        raise NotUnderstoodError(f"{call.op} of {call.item(0).type}")
    n, c, h, w = call.dims(0)
    block = call.int_("blocksize")
    grow = call.op == "DepthToSpace"
    made = (_scaled(c, block * block, not grow), _scaled(h, block, grow), _scaled(w, block, grow))
    return (call.copied("copy", call.item(0), (n, *made)),)


def _scaled(d: Dim, factor: int, up: bool) -> Dim:
    found = as_dim(as_expr(d) * factor) if up else quotient(d, factor)
    if found is None:
        raise NotUnderstoodError(f"{d} is no multiple of {factor}")
    return found


RULES: Mapping[str, Rule] = {
    "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Transpose": _transpose,
    "Expand": _expand, "Slice": _slice, "Split": _split, "Concat": _concat, "Tile": _tile, "Pad": _pad,
    "Identity": _identity, "Dropout": _identity, "DepthToSpace": _depth_to_space, "SpaceToDepth": _depth_to_space,
}  # fmt: skip
