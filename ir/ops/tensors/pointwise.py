"""Elementwise chains, casts, rotary embedding: work by element, traffic by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from ...records import dataclass
from ...sizes.expr import Dim, total
from ...types import DType
from ..base import (
    Attrs,
    OpCall,
    OpClass,
    OpDef,
    ShardChoice,
    Work,
    first_dims,
    free,
    makes,
    no_check,
    same_dims,
    traffic,
)
from ..index_map import IndexMap, aligned, lacking, numbered, tensor, whole
from ..traits import Trait

# FLOPs an element on the vector units; transcendental functions are counted as their usual polynomial length.
FLOPS_PER_ELEMENT = {
    "silu": 10, "silu_bwd": 20, "gelu": 10, "gelu_bwd": 20, "tanh": 8, "tanh_bwd": 3, "sigmoid": 8, "sigmoid_bwd": 3,
    "exp": 4, "log": 4, "sqrt": 2, "rsqrt": 2, "pow": 4, "sin": 8, "cos": 8, "div": 2, "dropout": 2, "dropout_bwd": 2,
    "softplus": 8, "softplus_bwd": 8, "erf": 8, "erfinv": 8, "relu": 1, "relu_bwd": 1,
    "reciprocal": 2, "floor_div": 2, "remainder": 2, "softsign": 2, "square": 1, "addcmul": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ElementwiseAttrs(Attrs):
    """`fns` are the functions of the chain in order; a fused chain has several.

    `mul` and `div` of one operand scale it by a number; `add` and `sub` of one have a number as the other.
    """

    fns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FillAttrs(Attrs):
    """`kind` is zeros, ones, constant, arange, random, eye, or empty, which writes nothing."""

    kind: str


@dataclass(frozen=True, slots=True)
class AccumulateAttrs(Attrs):
    """`fused`: the product that makes the gradient adds it to the sum itself; no gradient of its own is written."""

    fused: bool = False


def broadcast(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Return the shape two operands broadcast to, None when they do not.

    >>> broadcast((4, 1, 3), (5, 3))
    (4, 5, 3)
    """
    n = max(len(a), len(b))
    left, right = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    if any(x != y and x != 1 and y != 1 for x, y in zip(left, right, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))


def _broadcast(call: OpCall) -> tuple[Dim, ...]:
    return reduce(lambda a, b: broadcast(a, b) or (), (t.dims for t in call.inputs), ())


@makes(_broadcast)
def _check(call: OpCall) -> Iterator[str]:
    shape: tuple[Dim, ...] = ()
    for t in call.inputs:
        joined = broadcast(shape, t.dims)
        if joined is None:
            yield f"operands {', '.join(map(str, call.inputs))} do not broadcast"
            return
        shape = joined
    widest = max((o.dims for o in call.outputs), key=len)
    if call.inputs and broadcast(shape, widest) != widest:
        yield f"result {call.outputs[0]} does not hold the operands {', '.join(map(str, call.inputs))}"


def _work(call: OpCall) -> Work:
    numel = call.outputs[0].numel
    flops = sum(FLOPS_PER_ELEMENT.get(f, 1) for f in call.attrs_as(ElementwiseAttrs).fns)
    return traffic(call, numel * flops)


@makes(first_dims)
def _check_same(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.outputs[0].dims, call.inputs[0].dims, "result")


def _work_rope(call: OpCall) -> Work:
    """Three FLOPs a rotated element; the tensor is read and written once, the tables read once."""
    return traffic(call, call.outputs[0].numel * 3)


def _work_fill(call: OpCall) -> Work:
    if call.attrs_as(FillAttrs).kind == "empty":
        return Work()
    return Work(write_bytes=total(t.num_bytes for t in call.outputs))


def _work_accumulate(call: OpCall) -> Work:
    """Add a gradient to the running sum of the step: read both, write the sum.

    Fused into the product that makes the gradient, the sum is read and written where the gradient would be written.
    """
    kept, given = call.outputs[0].num_bytes, call.inputs[0].num_bytes
    if call.attrs_as(AccumulateAttrs).fused:
        return Work(vector_flops=call.outputs[0].numel, read_bytes=kept, write_bytes=kept - given)
    return Work(vector_flops=call.outputs[0].numel, read_bytes=given + kept, write_bytes=kept)


def _map_elementwise(call: OpCall, _axis: str) -> IndexMap:
    """Dims by broadcasting."""
    rank = max(t.rank for t in call.outputs)
    factors = numbered(rank)
    inputs = tuple(aligned(t, factors) for t in call.inputs)
    outputs = tuple(tensor(factors[rank - t.rank :]) for t in call.outputs)
    same = lacking(outputs, (f for f in factors if f is not None))
    return IndexMap(inputs, outputs, same=same, linear=_linear_operands(call), exact=True)


def _linear_operands(call: OpCall) -> tuple[tuple[int, ...], ...]:
    """Sums of tensors are linear in all together, products in each, quotients in the first.

    A backward function is linear in the gradient, its first operand; a choice in what is chosen from. One tensor alone
    may have a number added, which is not linear; `mul` and `div` of one tensor scale it.
    """
    fns, count = frozenset(call.attrs_as(ElementwiseAttrs).fns), len(call.inputs)
    if fns == {"neg"} or (fns <= {"add", "sub", "neg"} and count > 1):
        return (tuple(range(count)),)
    if len(fns) == 1 and next(iter(fns)).endswith("_bwd"):
        return ((0,),)
    if fns == {"where"}:
        return (tuple(i for i, t in enumerate(call.inputs) if t.dtype is not DType.BOOL),)
    if fns in ({"mul"}, {"div"}) and count < 3:
        return ((0,), (1,)) if fns == {"mul"} and count > 1 else ((0,),)
    return ()


def map_unary(call: OpCall, _axis: str) -> IndexMap:
    """Entry by entry, linear: a cast, a copy, a name, a running sum of gradients, a state that stays."""
    if any(given.dims != made.dims for given, made in zip(call.inputs, call.outputs, strict=False)):
        return IndexMap(whole(call.inputs), whole(call.outputs))
    alike = tensor(numbered(call.inputs[0].rank))
    return IndexMap((alike,), (alike,) * len(call.outputs), linear=((0,),))


def _map_fill(call: OpCall, _axis: str) -> IndexMap:
    """What is the same everywhere may be made in parts; counted and diagonal numbers only whole."""
    alike = call.attrs_as(FillAttrs).kind in ("zeros", "ones", "constant", "random", "empty")
    outputs = tuple(tensor(numbered(t.rank)) for t in call.outputs) if alike else whole(call.outputs)
    return IndexMap(whole(call.inputs), outputs)


def _map_rope(call: OpCall, _axis: str) -> IndexMap:
    """Rows rotate by rows of the tables, along the last dim; linear in what is rotated."""
    rows = (*numbered(call.inputs[0].rank - 1), "r!")
    tables = (aligned(t, rows) for t in call.inputs[1:3])
    return IndexMap((tensor(rows), *tables), (tensor(rows),), linear=((0,),))


OPS = (
    OpDef(
        "elementwise", OpClass.ELEMENTWISE, _work, "a chain of pointwise functions with broadcasting",
        _check, ElementwiseAttrs, min_inputs=1, num_outputs=None, traits=frozenset({Trait.POINTWISE}),
        index_map=_map_elementwise,
        shard=ShardChoice(order="widest"),
    ),
    OpDef("cast", OpClass.ELEMENTWISE, traffic, "change of dtype", _check_same,
          traits=frozenset({Trait.POINTWISE, Trait.SAME_VALUES, Trait.CASTS}), index_map=map_unary,
          shard=ShardChoice(sums="backward")),
    OpDef("rope", OpClass.ELEMENTWISE, _work_rope, "rotary embedding; inputs: x, cos, sin", _check_same, min_inputs=3,
          max_inputs=3, traits=frozenset({Trait.ROTATES}), index_map=_map_rope,
          shard=ShardChoice(names=(0,), sums="backward", gathers=True)),
    OpDef("rope_bwd", OpClass.ELEMENTWISE, _work_rope, "backward of rotary embedding; inputs: dx, cos, sin",
          _check_same, min_inputs=3, max_inputs=3, traits=frozenset({Trait.ROTATES, Trait.BACKWARD}),
          index_map=_map_rope,
          shard=ShardChoice(names=(0,), sums="always", gathers=True)),
    OpDef("fill", OpClass.ELEMENTWISE, _work_fill, "a tensor made from nothing: zeros, a range, random numbers",
          no_check, FillAttrs, min_inputs=0, max_inputs=1, traits=frozenset({Trait.FILLS}), index_map=_map_fill),
    OpDef(
        "accumulate", OpClass.ELEMENTWISE, _work_accumulate, "a gradient added to the step's running sum", _check_same,
        AccumulateAttrs, max_inputs=1, traits=frozenset({Trait.ACCUMULATES}), index_map=map_unary,
        shard=ShardChoice(sums="always"),
    ),
    OpDef("identity", OpClass.FREE, free, "the same tensor under another name (a region's output)", _check_same,
          traits=frozenset({Trait.SAME_VALUES, Trait.RENAMES}), index_map=map_unary,
          shard=ShardChoice(sums="backward")),
)  # fmt: skip
