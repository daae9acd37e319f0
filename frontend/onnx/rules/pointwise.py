"""Operators that work element by element, and those that make a tensor from nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.tensors.lookup import lookup_of
from ....ir.ops.tensors.pointwise import FillAttrs, broadcast
from ....ir.sizes.expr import Dim, Expr, as_dim, as_expr, divide_exactly
from ....ir.types import DType, TensorType
from ..call import Call, Rule
from ..shapes.items import Item, checked_dims, dtype_of, stored_item
from .views import known_dims

_SAME = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "Mod": "remainder",
    "Sqrt": "sqrt", "Exp": "exp",
    "Log": "log", "Neg": "neg", "Abs": "abs", "Reciprocal": "reciprocal", "Erf": "erf", "Tanh": "tanh",
    "Sigmoid": "sigmoid", "Relu": "relu", "LeakyRelu": "relu", "PRelu": "relu", "ThresholdedRelu": "relu", "Elu": "exp",
    "Selu": "exp", "Celu": "exp", "HardSigmoid": "clamp", "HardSwish": "clamp", "Softplus": "softplus",
    "Softsign": "softsign",
    "Mish": "silu", "Gelu": "gelu", "Swish": "silu", "Silu": "silu", "Clip": "clamp", "Sin": "sin", "Cos": "cos",
    "Tan": "sin", "Asin": "sin", "Acos": "cos", "Atan": "sin", "Sinh": "exp", "Cosh": "exp", "Asinh": "log",
    "Acosh": "log", "Atanh": "log", "Floor": "floor", "Ceil": "floor", "Round": "round", "Sign": "sign", "Min": "min",
    "Max": "max", "Sum": "add", "Mean": "add", "And": "and", "Or": "or", "Xor": "or", "Not": "not", "BitShift": "shift",
    "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "or", "BitwiseNot": "not",
    "Shrink": "where",
}  # fmt: skip
_FLAGS = {
    "Equal": "compare",
    "Less": "compare",
    "LessOrEqual": "compare",
    "Greater": "compare",
    "GreaterOrEqual": "compare",
    "IsNaN": "compare",
    "IsInf": "compare",
}
# Inputs beyond these are options.
_FIRST = {"Clip": 1}


def joined_dims(items: Sequence[Item]) -> tuple[Dim, ...]:
    """Return what the dims of items broadcast to; NotUnderstoodError where they do not."""
    dims: tuple[Dim, ...] = ()
    for item in items:
        found = broadcast(dims, item.dims)
        if found is None:
            raise NotUnderstoodError(f"{', '.join(str(i.type) for i in items)} do not broadcast")
        dims = found
    return dims


def _pointwise(call: Call) -> Sequence[Item]:
    items = [i for i in call.inputs if i is not None][: _FIRST.get(call.op)]
    if not items:
        raise NotUnderstoodError("no inputs")
    if call.op == "PRelu":
        items = [items[0], *(_by_channel(call, s, items[0]) for s in items[1:])]
    dims = joined_dims(items)
    if call.op in _FLAGS:
        return (call.pointwise(_FLAGS[call.op], items, dims, DType.BOOL),)
    # A number that a tensor divides is part of the kernel.
    fn = "reciprocal" if call.op == "Div" and items[0].is_scalar and not items[-1].is_scalar else _SAME[call.op]
    return (call.pointwise(fn, items, dims, items[0].type.dtype),)


def _by_channel(call: Call, slope: Item, x: Item) -> Item:
    """See one slope a channel under the dims of the input, as old forms and exporters mean it."""
    one_each = slope.type.rank == 1 and x.type.rank > 2 and slope.dims == x.dims[1:2] and slope.dims[0] != 1
    return call.reshape(slope, (*slope.dims, *(1 for _ in x.dims[2:]))) if one_each else slope


def _where(call: Call) -> Sequence[Item]:
    items = [call.item(0), call.item(1), call.item(2)]
    return (call.pointwise("where", items, joined_dims(items), items[1].type.dtype),)


def _cast(call: Call) -> Sequence[Item]:
    item = call.item(0)
    like = call.op == "CastLike"
    target = call.dtype(1) if like else dtype_of(call.int_("to"), "the target of Cast")
    return (item if target is item.type.dtype else call.copied("cast", item, item.dims, target),)


def _bit_cast(call: Call) -> Sequence[Item]:
    """The same bytes under another element type: a view."""
    item, target = call.item(0), dtype_of(call.int_("to"), "the target of BitCast")
    if target.num_bytes != item.type.dtype.num_bytes:
        raise NotUnderstoodError(f"BitCast of {item.type} to {target}, which has other bytes")
    return call.emit("reshape", [item], [TensorType(item.dims, target)], share=0)


def _triangle(call: Call) -> Sequence[Item]:
    """Trilu: what lies on one side of a diagonal."""
    x = call.item(0)
    given = call.item(1).content if call.has(1) else None
    diagonal = float(given.reshape(-1)[0]) if given is not None and given.size == 1 else 0.0
    made = call.pointwise("where", [x], x.dims, x.type.dtype)
    call.build.say(made, "triu" if call.int_("upper", 1) else "tril", (diagonal,))
    return (made,)


def _range(call: Call) -> Sequence[Item]:
    if call.dtype(0).is_floating:
        return (fill(call, (_real_range(call),), call.dtype(0), "arange"),)
    start, limit, step = (known_dims(call, k) for k in range(3))
    length = divide_exactly(as_dim(as_expr(limit[0]) - start[0]), step[0])
    if isinstance(start[0], int) and isinstance(limit[0], int) and isinstance(step[0], int) and step[0]:
        length = max(0, -((start[0] - limit[0]) // step[0]))
    if length is None:
        raise NotUnderstoodError(f"Range from {start[0]} to {limit[0]} by {step[0]}: not a whole number for all sizes")
    return (fill(call, (length,), call.dtype(0), "arange"),)


def _real_range(call: Call) -> Dim:
    """The length of a range of real numbers, ceil((limit - start) / step); of a size by one it is the size."""
    contents = [call.item(k).content for k in range(3)]
    for k, content in enumerate(contents):
        if content is None and call.build.sources(call.item(k).value):
            call.known(k)  # says which numbers to give
    numbers = [c.reshape(-1)[0] for c in contents if c is not None and c.size == 1]
    if len(numbers) < 3:
        return call.bound(0)
    start, limit, step = numbers
    if isinstance(limit, Expr) and isinstance(start, int | float) and isinstance(step, int | float):
        found = (
            divide_exactly(as_dim(limit - int(start)), int(step)) if start == int(start) and step == int(step) else None
        )
        return call.bound(0) if found is None else found
    if any(isinstance(n, Expr) for n in numbers) or not step or not all(map(math.isfinite, numbers)):
        return call.bound(0)
    length: int = math.ceil((limit - start) / step)
    return max(0, length)


def fill(call: Call, dims: tuple[Dim, ...], dtype: DType, kind: str) -> Item:
    """Write a tensor that is made from nothing."""
    kind_of = TensorType(checked_dims(dims, "a constant"), dtype)
    return call.emit("fill", [], [kind_of], FillAttrs(kind))[0]


def _constant_of_shape(call: Call) -> Sequence[Item]:
    given = call.attributes.get("value")
    dtype = DType.FP32 if given is None else stored_item(given.t).type.dtype
    return (fill(call, tuple(known_dims(call, 0)), dtype, "constant"),)


def _random(call: Call) -> Sequence[Item]:
    if call.op.endswith("Like") or call.op == "Bernoulli":
        return (fill(call, call.dims(0), _made_dtype(call, call.dtype(0)), "random"),)
    return (fill(call, call.ints("shape") or (), dtype_of(call.int_("dtype", 1), call.op), "random"),)


def _made_dtype(call: Call, default: DType) -> DType:
    """Return the element type that an attribute asks for."""
    code = call.int_("dtype", 0)
    return dtype_of(code, call.op) if code else default


def _eye(call: Call) -> Sequence[Item]:
    return (fill(call, call.dims(0), _made_dtype(call, call.dtype(0)), "eye"),)


def _one_hot(call: Call) -> Sequence[Item]:
    item, axis = call.item(0), call.axis(call.item(0).type.rank + 1, -1)
    given = call.item(1).content
    depth = call.bound(axis) if given is None or given.size != 1 else given.reshape(-1)[0]
    depth = int(depth) if isinstance(depth, float) and math.isfinite(depth) else depth
    if not isinstance(depth, int | Expr) or (isinstance(depth, Expr) and not depth.is_integral):
        raise NotUnderstoodError(f"OneHot of depth {depth}")
    dims = (*item.dims[:axis], depth, *item.dims[axis:])
    whole = tuple(range(item.type.rank))
    kind, attrs = TensorType(dims, call.dtype(2)), lookup_of([whole, (*whole[:axis], None, *whole[axis:])])
    return call.emit("gather", [item], [kind], attrs)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*_SAME, *_FLAGS), _pointwise),
    "Where": _where,
    "Cast": _cast,
    "CastLike": _cast,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye,
    "BitCast": _bit_cast,
    "Trilu": _triangle,
    "OneHot": _one_hot,
    **dict.fromkeys(("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"), _random),
}
