"""Sequences of tensors, of a length that is known as the graph is read, and values that may be left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.sizes.expr import Dim, as_dim, as_expr, divide_exactly
from ....ir.types import DType, TensorType
from ..call import Call, Rule
from ..shapes.items import Item, constant, dtype_of
from .views import known_dims

MAX_PARTS = 4096


def sequence_of(parts: Sequence[Item], dtype: DType = DType.FP32) -> Item:
    """Return a sequence as an item; its type is that of its first tensor."""
    if len(parts) > MAX_PARTS:
        raise NotUnderstoodError(f"a sequence of {len(parts)} tensors; {MAX_PARTS} at most")
    return Item(parts[0].type if parts else TensorType((), dtype), parts=tuple(parts))


def _parts(call: Call, index: int = 0) -> tuple[Item, ...]:
    found = call.item(index).parts
    if found is None:
        raise NotUnderstoodError(f"input {index} is no sequence")
    return found


def _constructed(call: Call) -> Sequence[Item]:
    return (sequence_of([i for i in call.inputs if i is not None]),)


def _empty(call: Call) -> Sequence[Item]:
    return (sequence_of((), dtype_of(call.int_("dtype", 1), "SequenceEmpty")),)


def _place(call: Call, index: int, number: int, default: int) -> int:
    """Return a place in a sequence, counted from the front."""
    if not call.has(index):
        return default
    place = int(str(known_dims(call, index)[0]))
    if not -number <= place <= number:
        raise NotUnderstoodError(f"place {place} of a sequence of {number}")
    return place % number if place < 0 else place


def _at(call: Call) -> Sequence[Item]:
    parts = _parts(call)
    place = _place(call, 1, len(parts), 0)
    if place >= len(parts):
        raise NotUnderstoodError(f"place {place} of a sequence of {len(parts)}")
    return (parts[place],)


def _inserted(call: Call) -> Sequence[Item]:
    parts = list(_parts(call))
    parts.insert(_place(call, 2, len(parts), len(parts)), call.item(1))
    return (sequence_of(parts),)


def _erased(call: Call) -> Sequence[Item]:
    parts = list(_parts(call))
    place = _place(call, 1, len(parts), len(parts) - 1)
    return (sequence_of([*parts[:place], *parts[place + 1 :]], call.dtype(0)),)


def _length(call: Call) -> Sequence[Item]:
    number = constant([len(_parts(call))])
    assert number.content is not None
    return (Item(TensorType((), DType.INT64), content=number.content.reshape(())),)


def _concatenated(call: Call) -> Sequence[Item]:
    parts = _parts(call)
    if not parts:
        raise NotUnderstoodError("ConcatFromSequence of nothing")
    if not call.int_("new_axis", 0):
        return (call.concat(parts, call.axis(parts[0].type.rank)),)
    axis = call.axis(parts[0].type.rank + 1)
    tall = [call.reshape(p, (*p.dims[:axis], 1, *p.dims[axis:])) for p in parts]
    return (call.concat(tall, axis),)


def _split(call: Call) -> Sequence[Item]:
    """SplitToSequence(x, sizes): a list of sizes, one size for all, or entries one by one."""
    x = call.item(0)
    axis, keep = call.axis(x.type.rank, 0), bool(call.int_("keepdims", 1))
    parts: list[Item] = []
    start: Dim = 0
    for size in _sizes(call, x.dims[axis]):
        drop = not call.has(1) and not keep
        parts.append(call.slice(x, axis, start, size, drop=drop))
        start = as_dim(as_expr(start) + size)
    return (sequence_of(parts, x.type.dtype),)


def _sizes(call: Call, whole: Dim) -> list[Dim]:
    if call.has(1) and call.item(1).type.rank == 1:
        return known_dims(call, 1)
    each = known_dims(call, 1)[0] if call.has(1) else 1
    number = divide_exactly(whole, each)
    if isinstance(whole, int) and isinstance(each, int) and each > 0 and whole // each < MAX_PARTS:
        return [min(each, whole - k) for k in range(0, whole, each)]
    if not isinstance(number, int) or not 0 < number <= MAX_PARTS:
        raise NotUnderstoodError(f"SplitToSequence of {whole} into pieces of {each}")
    return [each] * number


def _optional(call: Call) -> Sequence[Item | None]:
    """A value that may be left out is the value, or nothing."""
    return (call.optional(0),)


def _element(call: Call) -> Sequence[Item]:
    return (call.item(0),)


def _has_element(call: Call) -> Sequence[Item]:
    flag = constant([call.has(0)], DType.BOOL)
    assert flag.content is not None
    return (Item(TensorType((), DType.BOOL), content=flag.content.reshape(())),)


RULES: Mapping[str, Rule] = {
    "SequenceConstruct": _constructed, "SequenceEmpty": _empty, "SequenceAt": _at, "SequenceInsert": _inserted,
    "SequenceErase": _erased, "SequenceLength": _length, "ConcatFromSequence": _concatenated,
    "SplitToSequence": _split, "Optional": _optional, "OptionalGetElement": _element,
    "OptionalHasElement": _has_element,
}  # fmt: skip
# What takes sequences, or hands on whatever it is given.
TAKE_SEQUENCES = frozenset((*RULES, "Identity", "Loop", "If", "Scan", "SequenceMap"))
