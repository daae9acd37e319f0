"""Backward of reductions, running sums, softmax and norms over channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....ir.errors import UnsupportedOpError
from ....ir.graph import Node
from ....ir.ops.tensors.images import ChannelNormAttrs
from ....ir.ops.tensors.lookup import copied_dims, lookup_of, spec_of
from ....ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from ....ir.types import DType, TensorType
from ..rule import Grads, Rule
from ..tape import Tape

_FLAT = ("argmax", "argmin", "any", "all")


def reduce(tape: Tape, node: Node, grads: Grads) -> None:
    """A sum hands its gradient to every entry; the others weigh it."""
    assert isinstance(node.attrs, ReduceAttrs)
    fn, source = node.attrs.fn, node.inputs[0]
    if fn in _FLAT:
        return
    if fn not in ("sum", "mean", "amax", "amin", "max", "min", "var", "norm", "logsumexp"):
        raise UnsupportedOpError(f"no backward rule for '{fn}' over dims {node.attrs.dims} (in '{node.scope}')")
    kind = tape.type(source)
    grad, result = (_kept(tape, v, node.attrs, kind) for v in (grads.first, node.key))
    if fn == "sum":
        tape.give(source, _spread(tape, grad, kind))
    elif fn == "mean":
        tape.give(source, tape.apply("div", _spread(tape, grad, kind)))
    elif fn == "var":
        _variance(tape, source, grad, node.attrs)
    elif fn == "norm":
        _length(tape, source, grad, result)
    elif fn == "logsumexp":
        weights = tape.apply("exp", tape.apply("sub", source, result))
        tape.give(source, tape.apply("mul", grad, weights, kind=kind))
    else:
        _extreme(tape, source, grad, result, node.attrs)


def _kept(tape: Tape, value: int, attrs: ReduceAttrs, kind: TensorType) -> int:
    """The reduced dims as dims of size one."""
    return tape.reshape(value, tuple(1 if i in attrs.dims else d for i, d in enumerate(kind.dims)))


def _spread(tape: Tape, grad: int, kind: TensorType) -> int:
    return tape.emit("expand", (grad,), [tape.type(grad).with_dims(kind.dims)])[0]


def _variance(tape: Tape, source: int, grad: int, attrs: ReduceAttrs) -> None:
    """2 / n (x - mean x)."""
    kind = tape.type(source)
    over = ReduceAttrs("mean", attrs.dims, keepdim=True)
    (mean,) = tape.emit("reduce", (source,), [kind.with_dims(tape.type(grad).dims)], over)
    slope = tape.apply("sub", source, mean)
    tape.give(source, tape.apply("mul", tape.apply("mul", grad), slope, kind=kind))


def _length(tape: Tape, source: int, grad: int, result: int) -> None:
    """Of the Euclidean length: x / |x|, nothing where that is zero; other lengths differ in one step."""
    empty = tape.apply("compare", result, kind=TensorType(tape.type(result).dims, DType.BOOL))
    slope = tape.apply("where", tape.apply("div", source, result), empty)
    tape.give(source, tape.apply("mul", slope, grad))


def _extreme(tape: Tape, source: int, grad: int, result: int, attrs: ReduceAttrs) -> None:
    """The gradient goes to the entries that are the extreme, in equal parts."""
    kind = tape.type(source)
    hit = tape.apply("compare", result, source, kind=TensorType(kind.dims, DType.BOOL))
    over = ReduceAttrs("sum", attrs.dims, keepdim=True)
    (count,) = tape.emit("reduce", (hit,), [TensorType(tape.type(grad).dims, DType.INT64)], over)
    tape.give(source, tape.apply("mul", tape.apply("div", grad, count), hit, kind=kind))


def cumsum(tape: Tape, node: Node, grads: Grads) -> None:
    """The running sum from the other end."""
    kind = tape.type(grads.first)
    assert isinstance(node.attrs, DimAttrs)
    turn = lookup_of(copied_dims(kind.dims, kind.dims, (node.attrs.dim,)))
    (turned,) = tape.emit("gather", (grads.first,), [kind], turn)
    (summed,) = tape.emit("cumsum", (turned,), [kind], node.attrs)
    tape.give(node.inputs[0], tape.emit("gather", (summed,), [kind], turn)[0])


def softmax(tape: Tape, node: Node, grads: Grads) -> None:
    """One op of the gradient and the result."""
    tape.give(node.inputs[0], tape.emit("softmax_bwd", (grads.first, node.key), [tape.type(node.key)], node.attrs)[0])


def channel_norm(tape: Tape, node: Node, grads: Grads) -> None:
    """One op makes what is asked of the gradients of x, weight and bias; statistics that are given have none."""
    assert isinstance(node.attrs, ChannelNormAttrs)
    if not node.attrs.given:
        raise UnsupportedOpError(f"no backward rule for a norm by the statistics of a batch (in '{node.scope}')")
    x, weight, bias, *statistics = node.inputs
    asked = [i for i in (x, weight, bias) if i in tape.needs]
    words = dict(zip(node.inputs, node.attrs.letters, strict=False))
    read = (x, weight, *statistics)
    attrs = replace(node.attrs, spec=spec_of([words[x], *(words[i] for i in read)], [words[i] for i in asked]))
    made = tape.emit("channel_norm_bwd", (grads.first, *read), [tape.type(i) for i in asked], attrs)
    for value, grad in zip(asked, made, strict=True):
        tape.give(value, grad)


RULES: Mapping[str, Rule] = {"reduce": reduce, "cumsum": cumsum, "softmax": softmax, "channel_norm": channel_norm}
