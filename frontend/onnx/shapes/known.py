"""Sizes and other small tensors computed while the graph is read: what Reshape, Expand and Slice aim at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ....ir.errors import NotUnderstoodError
from ....ir.sizes.expr import Dim, Expr, as_dim, as_expr, divide_exactly
from ....ir.types import DType
from ..builder import Builder
from ..call import Call, axis_of
from .items import MAX_CONTENT, Content, Item, bounded, constant, dtype_of, stored_item

Number = int | float | bool | Expr
Known = Callable[[Call, list[Content]], Content | None]


def computed(call: Call) -> Item | None:
    """Return the one result of a node whose inputs are all known numbers; None where it must run on the device."""
    rule = KNOWN.get(call.op)
    read = call.inputs[:1] if call.op == "CastLike" else call.inputs
    given = [i.content for i in read if i is not None]
    contents = [c for c in given if c is not None]
    if rule is None or call.node.domain not in ("", "ai.onnx") or len(contents) < len(given) or not given:
        return None
    try:
        found = rule(call, contents)
    except _UnknownError:
        return None
    if found is None or found.size > MAX_CONTENT:
        return None
    return constant(found, _dtype(call))


class _UnknownError(Exception):
    """A number that cannot be said: the quotient of symbols, the root of one."""


def _dtype(call: Call) -> DType:
    if call.op == "CastLike":
        return call.dtype(1)
    if call.op == "Cast":
        return dtype_of(call.int_("to"), "the target of Cast")
    if call.op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or"):
        return DType.BOOL
    if call.op == "ConstantOfShape":
        value = call.attributes.get("value")
        return DType.FP32 if value is None else dtype_of(value.t.data_type, "the constant")
    return call.dtype(1 if call.op == "Where" else 0)


def _gather(call: Call, given: list[Content]) -> Content:
    data, indices = given
    axis = call.axis(data.ndim, 0)
    places = indices.astype(np.int64)
    if places.size * max(data.size, 1) > MAX_CONTENT**2:
        raise _UnknownError
    return np.asarray(np.take(data, places, axis=axis), dtype=object)


def _concat(call: Call, given: list[Content]) -> Content:
    if any(c.ndim == 0 for c in given):
        raise NotUnderstoodError("Concat of single numbers")
    return np.concatenate(given, axis=call.axis(given[0].ndim))


def _slice(call: Call, given: list[Content]) -> Content:
    data, starts, ends = given[:3]
    axes = given[3].tolist() if len(given) > 3 else list(range(starts.size))
    steps = given[4].tolist() if len(given) > 4 else [1] * starts.size
    ranges = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps, strict=True):
        size = data.shape[axis_of(axis, data.ndim)]
        ranges[axis_of(axis, data.ndim)] = slice(_whole(start), _end(end, size), _whole(step))
    return data[tuple(ranges)]


def _end(end: Number, size: int) -> int:
    return size if isinstance(end, Expr) else int(end)


def _whole(n: Number) -> int:
    if isinstance(n, Expr):
        raise _UnknownError
    return int(n)


def _squeeze(call: Call, given: list[Content]) -> Content:
    axes = tuple(int(a) for a in given[1].tolist()) if len(given) > 1 else None
    return np.squeeze(given[0], axis=axes)


def _unsqueeze(call: Call, given: list[Content]) -> Content:
    return np.expand_dims(given[0], tuple(int(a) for a in np.atleast_1d(given[1]).tolist()))


def _reshape(call: Call, given: list[Content]) -> Content:
    dims = [_whole(d) for d in given[1].tolist()]
    dims = [given[0].shape[i] if d == 0 and not call.int_("allowzero", 0) else d for i, d in enumerate(dims)]
    return given[0].reshape(dims)


def _cast(call: Call, given: list[Content]) -> Content:
    """To the type that an attribute names, or that of another tensor."""
    target = _dtype(call)
    return _each(lambda n: _as(n, target), given[0])


def _as(n: Number, target: DType) -> Number:
    if isinstance(n, Expr):
        return n
    if target is DType.BOOL:
        return bool(n)
    if not target.is_floating and isinstance(n, float) and not math.isfinite(n):
        raise _UnknownError
    return float(n) if target.is_floating else int(n)


def _each(fn: Callable[..., Number], *arrays: Content) -> Content:
    """Apply a function to numbers, with broadcasting."""
    joined = np.broadcast_arrays(*arrays)
    if joined[0].size > MAX_CONTENT:
        raise _UnknownError
    made = np.empty(joined[0].shape, dtype=object)
    for index in np.ndindex(*made.shape):
        n = made[index] = fn(*(a[index] for a in joined))
        if isinstance(n, int | Expr):
            bounded(n)
    return made


def _folded(fn: Callable[[Number, Number], Number]) -> Known:
    def run(call: Call, given: list[Content]) -> Content:
        found = given[0]
        for other in given[1:]:
            found = _each(fn, found, other)
        return found

    return run


def _mapped(fn: Callable[[Number], Number]) -> Known:
    return lambda call, given: _each(fn, given[0])


def _dim(n: Number) -> Number:
    return as_dim(n) if isinstance(n, Expr) else n


def _div(a: Number, b: Number) -> Number:
    if isinstance(a, Expr) or isinstance(b, Expr):
        if isinstance(a, float) or isinstance(b, float):
            raise _UnknownError
        found = divide_exactly(a, b)
        if found is None:
            raise _UnknownError
        return found
    if b == 0:
        raise _UnknownError
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return math.trunc(a / b) if abs(a) < 2**52 else a // b


def _mod(a: Number, b: Number) -> Number:
    if isinstance(a, Expr) or isinstance(b, Expr) or b == 0:
        raise _UnknownError
    return a % b


def _pow(a: Number, b: Number) -> Number:
    if isinstance(a, Expr) or isinstance(b, Expr) or abs(b) > 64 or abs(a) > 2**32 or (a <= 0 and b < 0):
        raise _UnknownError
    n = a**b
    if not isinstance(n, int | float):
        raise _UnknownError
    return n


def _root(n: Number) -> Number:
    if isinstance(n, Expr) or n < 0:
        raise _UnknownError
    return math.sqrt(n)


def _rounded(fn: Callable[[float], int]) -> Callable[[Number], Number]:
    def run(n: Number) -> Number:
        if isinstance(n, Expr):
            return n
        if not math.isfinite(n):
            raise _UnknownError
        return float(fn(n))

    return run


def _range(call: Call, given: list[Content]) -> Content | None:
    start, limit, step = (g.item() for g in given)
    if any(isinstance(n, Expr | float) for n in (start, limit, step)) or step == 0:
        return None
    found = range(start, limit, step)
    return None if len(found) > MAX_CONTENT else np.array(list(found), dtype=object)


def _fill(call: Call, given: list[Content]) -> Content | None:
    dims = given[0].tolist()
    if any(isinstance(d, Expr) for d in dims) or math.prod(dims) > MAX_CONTENT or any(d < 0 for d in dims):
        return None
    tensor = call.attributes.get("value")
    value = stored_item(tensor.t).content if tensor is not None else np.array([0.0], dtype=object)
    if value is None or value.size != 1:
        return None
    made = np.empty(tuple(int(d) for d in dims), dtype=object)
    made.fill(value.reshape(-1)[0])
    return made


def _expand(call: Call, given: list[Content]) -> Content | None:
    dims = given[1].tolist()
    if any(isinstance(d, Expr) for d in dims) or math.prod(dims) > MAX_CONTENT:
        return None
    return np.array(np.broadcast_to(given[0], np.broadcast_shapes(given[0].shape, tuple(int(d) for d in dims))))


def _reduce(start: Number, fn: Callable[[Number, Number], Number]) -> Known:
    def run(call: Call, given: list[Content]) -> Content:
        if given[0].ndim > 1:
            raise _UnknownError
        total = start
        for n in given[0].reshape(-1).tolist():
            total = fn(total, n)
        return np.array([total] if call.int_("keepdims", 1) and given[0].ndim else total, dtype=object)

    return run


def _transpose(call: Call, given: list[Content]) -> Content:
    return np.transpose(given[0], call.ints("perm"))


def compare(build: Builder, op: str, a: Number, b: Number) -> bool:
    """Compare two known numbers; symbolic sizes by what holds for all, else for likely ones."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        results: Mapping[str, bool] = {
            "Equal": a == b,
            "Less": a < b,
            "LessOrEqual": a <= b,
            "Greater": a > b,
            "GreaterOrEqual": a >= b,
        }
        return bool(results[op])
    x, y = _exact(a), _exact(b)
    if op == "Equal":
        return as_expr(x) == as_expr(y)
    if op in ("Less", "GreaterOrEqual"):
        return build.is_less(x, y) is (op == "Less")
    return build.is_less(y, x) is (op == "Greater")


def _exact(n: Number) -> Dim:
    if isinstance(n, Expr):
        return n
    if not math.isfinite(n):
        raise _UnknownError
    return int(n)


def _compared(call: Call, given: list[Content]) -> Content:
    return _each(lambda a, b: compare(call.build, call.op, a, b), *given)


def _extreme(largest: bool) -> Known:
    def run(call: Call, given: list[Content]) -> Content | None:
        def pick(a: Number, b: Number) -> Number:
            return b if compare(call.build, "Less", a, b) is largest else a

        return _folded(pick)(call, given)

    return run


def _where(call: Call, given: list[Content]) -> Content:
    return _each(lambda c, a, b: a if c else b, *given)


KNOWN: Mapping[str, Known] = {
    "Gather": _gather, "Concat": _concat, "Slice": _slice, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Reshape": _reshape, "Cast": _cast, "CastLike": _cast, "Range": _range, "ConstantOfShape": _fill, "Expand": _expand,
    "Transpose": _transpose, "Where": _where, "Identity": lambda call, given: given[0],
    "Add": _folded(lambda a, b: _dim(a + b)), "Sub": _folded(lambda a, b: _dim(a - b)),
    "Mul": _folded(lambda a, b: _dim(a * b)), "Div": _folded(_div), "Mod": _folded(_mod), "Pow": _folded(_pow),
    "Sqrt": _mapped(_root), "Neg": _mapped(lambda n: -n), "Floor": _mapped(_rounded(math.floor)),
    "Abs": _mapped(lambda n: n if isinstance(n, Expr) else abs(n)),
    "Ceil": _mapped(_rounded(math.ceil)), "Not": _mapped(lambda n: not n),
    "And": _folded(lambda a, b: bool(a) and bool(b)), "Or": _folded(lambda a, b: bool(a) or bool(b)),
    "Min": _extreme(False), "Max": _extreme(True),
    "ReduceProd": _reduce(1, lambda a, b: _dim(a * b)), "ReduceSum": _reduce(0, lambda a, b: _dim(a + b)),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _compared),
}  # fmt: skip
