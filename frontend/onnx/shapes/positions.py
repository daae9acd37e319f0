"""Tensors that depend on positions alone, followed while a graph is read, from ranges to masks.

Exporters write masks for packed sequences as long chains of ranges (differences of neighbours, running sums, lookups),
which come to `True` everywhere when nobody gives positions. What comes to one number is not computed on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ....ir.ops.tensors.pointwise import FillAttrs
from ....ir.records import dataclass
from ....ir.sizes.expr import Dim
from ....ir.types import DType, TensorType
from ..call import Call, axis_of
from ..rules.pointwise import joined_dims
from .items import Affine, Item, Joined, Number, Pattern, moved, times, whole
from .known import compare

# What wraps around: sizes of eight and sixteen bits are not followed.
_WIDE = (DType.INT64, DType.INT32)
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


@dataclass(frozen=True, slots=True)
class _Given:
    """A node with what its rule made, and what is known of its inputs."""

    call: Call
    made: Item
    patterns: tuple[Pattern | None, ...]

    def affine(self, index: int = 0) -> Affine | None:
        """Return an input that is a range, None where it is none."""
        found = self.patterns[index] if index < len(self.patterns) else None
        return found if isinstance(found, Affine) else None

    def affines(self) -> tuple[Affine, ...] | None:
        """Return all inputs spread over the result's dims, None where one is not known."""
        rank = len(self.made.dims)
        found = [self.affine(i) for i in range(len(self.patterns))]
        known = tuple(f.widened(rank) for f in found if f is not None)
        return known if len(known) == len(found) else None

    def uniform(self, index: int) -> Number | None:
        """Return the one number that an input is everywhere, None where it is none."""
        found = self.affine(index)
        return found.start if found is not None and found.is_uniform else None


def chosen(call: Call) -> Item | None:
    """Return the operand that flags known everywhere let through: And(x, True) is x; None where they do not say."""
    if call.op not in ("And", "Or", "Where") or any(i is None for i in call.inputs):
        return None
    flags = [_flag(i) for i in call.inputs]
    if call.op == "Where":
        return None if flags[0] is None else _spread(call, call.item(1 if flags[0] else 2))
    for index, other in ((0, 1), (1, 0)):
        flag = flags[index]
        if flag is not None:
            return _spread(call, call.item(other if flag is (call.op == "And") else index))
    return None


def _flag(item: Item | None) -> bool | None:
    pattern = None if item is None else pattern_of(item)
    if not isinstance(pattern, Affine) or not pattern.is_uniform or not isinstance(pattern.start, bool):
        return None
    return pattern.start


def _spread(call: Call, item: Item) -> Item:
    """See one operand under the dims of all."""
    dims = joined_dims([i for i in call.inputs if i is not None])
    if item.dims == dims:
        return item
    pattern = pattern_of(item)
    lined = call.reshape(item, (1,) * (len(dims) - len(item.dims)) + item.dims)
    made = call.expand(lined, dims)
    return replace(made, pattern=pattern.widened(len(dims))) if isinstance(pattern, Affine) else made


def followed(call: Call, made: Sequence[Item | None]) -> Sequence[Item | None]:
    """Return the results of a node, the one of it with what is known of its numbers at every place."""
    rule = _RULES.get(call.op)
    first = made[0] if len(made) == 1 else None
    if rule is None or first is None or first.pattern is not None or call.node.domain not in ("", "ai.onnx"):
        return made
    if first.type.dtype.is_floating or first.content is not None:
        return made
    given = _Given(call, first, tuple(None if i is None else pattern_of(i) for i in call.inputs))
    found = rule(given)
    if found is None:
        return made
    if isinstance(found, Joined):
        return (replace(first, pattern=found),)
    found = found.within(first.dims)
    if call.op in _KEPT and not found.is_uniform:
        return (replace(first, pattern=found),)
    return (_written(call, first.type, found),)


def pattern_of(item: Item) -> Pattern | None:
    """Return what is known of an item's numbers: followed, or read off numbers that are stored."""
    if item.pattern is not None or item.content is None or item.content.size == 0 or item.type.dtype.is_floating:
        return item.pattern
    numbers: list[Number] = item.content.reshape(-1).tolist()
    if len(numbers) == 1:
        return Affine(numbers[0], (0,) * item.type.rank)
    if item.type.rank != 1 or any(isinstance(n, bool | float) for n in numbers):
        return None
    step = moved(numbers[1], numbers[0], -1)
    goes_on = all(whole(b) == moved(a, step) for a, b in pairwise(numbers))
    return Affine(numbers[0], (step,)) if goes_on else None


def _written(call: Call, kind: TensorType, found: Affine) -> Item:
    """Write a tensor as a sum of ranges along its dims, or as one number."""
    axes = [axis for axis, step in enumerate(found.steps) if step != 0]
    ranges = [_along(call, kind, axis) for axis in axes] or [_along(call, kind, None)]
    item = ranges[0]
    for other in ranges[1:]:
        item = call.pointwise("add", [item, other], joined_dims([item, other]), kind.dtype)
    return replace(call.expand(item, kind.dims), pattern=found)


def _along(call: Call, kind: TensorType, axis: int | None) -> Item:
    flat = () if axis is None else (kind.dims[axis],)
    made = call.emit("fill", [], [kind.with_dims(flat)], FillAttrs("constant" if axis is None else "arange"))[0]
    return call.reshape(made, tuple(d if at == axis else 1 for at, d in enumerate(kind.dims)))


def _range(given: _Given) -> Pattern | None:
    start, step = given.uniform(0), given.uniform(2)
    return None if start is None or step is None else Affine(start, (whole(step),))


def _same(given: _Given) -> Pattern | None:
    return given.patterns[0]


def _cast(given: _Given) -> Pattern | None:
    found, target = given.affine(), given.made.type.dtype
    if found is None:
        return None
    if target is DType.BOOL:
        flag = isinstance(found.start, int) and found.is_uniform
        return Affine(bool(found.start), found.steps) if flag else None
    return Affine(whole(found.start), found.steps) if target in _WIDE else None


def _expanded(given: _Given) -> Pattern | None:
    found = given.affine()
    return None if found is None else found.widened(len(given.made.dims))


def _reshaped(given: _Given) -> Pattern | None:
    """Dims of one may come and go; a range in the midst of others that are merged is not followed."""
    found = given.affine()
    if found is None:
        return None
    if found.is_uniform:
        return Affine(found.start, (0,) * len(given.made.dims))
    before = [(d, s) for d, s in zip(given.call.dims(0), found.steps, strict=True) if d != 1]
    if [d for d, _ in before] != [d for d in given.made.dims if d != 1]:
        return None
    steps = iter(s for _, s in before)
    return Affine(found.start, tuple(0 if d == 1 else next(steps) for d in given.made.dims))


def _turned(given: _Given) -> Pattern | None:
    found = given.affine()
    order = given.call.ints("perm")
    if found is None:
        return None
    return Affine(found.start, tuple(found.steps[d] for d in order) if order else found.steps[::-1])


def _sliced(given: _Given) -> Pattern | None:
    """A range from a place on; only forward and one by one, or of what is the same all along."""
    found, call = given.affine(), given.call
    if found is None or found.is_uniform:
        return found
    starts = call.known(1).reshape(-1).tolist()
    axes = call.known(3).reshape(-1).tolist() if call.has(3) else list(range(len(starts)))
    steps = call.known(4).reshape(-1).tolist() if call.has(4) else [1] * len(starts)
    begin: Dim = whole(found.start)
    for place, axis, step in zip(starts, axes, steps, strict=True):
        slope = found.steps[axis_of(int(axis), len(found.steps))]
        if slope != 0 and (step != 1 or not isinstance(place, int) or place < 0):
            return None
        begin = begin if slope == 0 else moved(begin, times(slope, place))
    return Affine(begin, found.steps)


def _concatenated(given: _Given) -> Pattern | None:
    """Pieces of which each goes on where the last one ended; single entries side by side are kept apart."""
    axis = given.call.axis(len(given.made.dims))
    pieces = [p for p in given.patterns if isinstance(p, Affine)]
    sizes = [i.dims[axis] for i in given.call.inputs if i is not None]
    if len(pieces) != len(sizes) or not pieces:
        return None
    return _in_one_line(pieces, sizes, axis) or _side_by_side(pieces, sizes, axis)


def _in_one_line(pieces: Sequence[Affine], sizes: Sequence[Dim], axis: int) -> Affine | None:
    lines = [p.steps for p, n in zip(pieces, sizes, strict=True) if n != 1]
    if not lines or any(isinstance(p.start, bool) for p in pieces):
        return None
    at = whole(pieces[0].start)
    for piece, size in zip(pieces, sizes, strict=True):
        steps = (*piece.steps[:axis], lines[0][axis] if size == 1 else piece.steps[axis], *piece.steps[axis + 1 :])
        if steps != lines[0] or whole(piece.start) != at:
            return None
        at = moved(at, times(lines[0][axis], size))
    return Affine(pieces[0].start, lines[0])


def _side_by_side(pieces: Sequence[Affine], sizes: Sequence[Dim], axis: int) -> Joined | None:
    is_last = axis == len(pieces[0].steps) - 1
    if not is_last or any(n != 1 for n in sizes):
        return None
    return Joined(tuple(Affine(p.start, p.steps[:-1]) for p in pieces))


def _gathered(given: _Given) -> Pattern | None:
    """Entries at places that are a range themselves."""
    data, places = given.affine(0), given.affine(1)
    if data is None or places is None:
        return data if data is not None and data.is_uniform and not given.made.dims else _uniform(given, data)
    axis = given.call.axis(len(data.steps), 0)
    start, slope = whole(places.start), data.steps[axis]
    if slope != 0 and isinstance(start, int) and start < 0:
        start = moved(start, given.call.dims(0)[axis])
    begin = moved(data.start, times(slope, start)) if slope != 0 else data.start
    along = tuple(times(s, slope) for s in places.steps)
    return Affine(begin, (*data.steps[:axis], *along, *data.steps[axis + 1 :]))


def _uniform(given: _Given, data: Affine | None) -> Affine | None:
    if data is None or not data.is_uniform:
        return None
    return Affine(data.start, (0,) * len(given.made.dims))


def _gathered_at(given: _Given) -> Pattern | None:
    """Entries whose places stand side by side, one for each of the first dims."""
    data, places = given.affine(0), given.patterns[1]
    if data is None or data.is_uniform:
        return _uniform(given, data)
    if not isinstance(places, Joined) or given.call.int_("batch_dims", 0):
        return None
    inner = data.steps[len(places.parts) :]
    total = Affine(data.start, (*(0,) * len(places.parts[0].steps), *inner))
    for part, slope in zip(places.parts, data.steps, strict=False):
        moved = part.scaled(slope)
        total = total.plus(Affine(moved.start, (*moved.steps, *(0,) * len(inner))), 1)
    return total


def _added(given: _Given) -> Pattern | None:
    found = given.affines()
    if found is None or len(found) != 2:
        return None
    return found[0].plus(found[1], -1 if given.call.op == "Sub" else 1)


def _multiplied(given: _Given) -> Pattern | None:
    found = given.affines()
    if found is None or len(found) != 2:
        return None
    a, b = found if found[1].is_uniform else found[::-1]
    return a.scaled(whole(b.start)) if b.is_uniform else None


def _compared(given: _Given) -> Pattern | None:
    """Whether two ranges compare so everywhere: those that keep their distance do."""
    found = given.affines()
    if found is None or len(found) != 2 or found[0].steps != found[1].steps:
        return None
    gap = moved(found[0].start, found[1].start, -1)
    if not isinstance(gap, int):
        return None
    return Affine(compare(given.call.build, given.call.op, gap, 0), (0,) * len(found[0].steps))


def _negated(given: _Given) -> Pattern | None:
    found = given.affine()
    if found is None or not isinstance(found.start, bool):
        return None
    return Affine(not found.start, found.steps)


def _run_up(given: _Given) -> Pattern | None:
    """The running sum of one number is a range."""
    found, call = given.affine(), given.call
    if found is None or not found.is_uniform or call.int_("reverse", 0):
        return None
    axes = call.known(1).reshape(-1).tolist()
    axis, step = axis_of(int(axes[0]), len(found.steps)), whole(found.start)
    steps = tuple(step if at == axis else 0 for at in range(len(found.steps)))
    return Affine(0 if call.int_("exclusive", 0) else step, steps)


_RULES: Mapping[str, Callable[[_Given], Pattern | None]] = {
    "Range": _range, "Identity": _same, "Cast": _cast, "CastLike": _cast, "Expand": _expanded, "Reshape": _reshaped,
    "Squeeze": _reshaped, "Unsqueeze": _reshaped, "Transpose": _turned, "Slice": _sliced, "Concat": _concatenated,
    "Gather": _gathered, "GatherND": _gathered_at, "Add": _added, "Sub": _added, "Mul": _multiplied, "Not": _negated,
    "CumSum": _run_up, **dict.fromkeys(_COMPARISONS, _compared),
}  # fmt: skip
# What stays as the file has it where it is no single number: a kernel that runs, or a look at a range.
_KEPT = ("Range", "Identity", "Cast", "CastLike", "Expand", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice",
         "Add", "Sub", "Mul")  # fmt: skip
