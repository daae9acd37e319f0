"""Backward of products, reductions and norms, and of operators that are one kernel each way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from string import ascii_lowercase

from ...ir.errors import UnsupportedOpError
from ...ir.graph import Node
from ...ir.ops.fused.experts import GroupedAttrs
from ...ir.ops.fused.scan import ScanAttrs, ScanBwdAttrs
from ...ir.ops.tensors.conv import ConvAttrs
from ...ir.ops.tensors.images import ChannelNormAttrs
from ...ir.ops.tensors.lookup import copied_dims, lookup_of, spec_of
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from ...ir.types import DType, TensorType
from .tape import Grads, Rule, Tape


def matmul(tape: Tape, node: Node, grads: Grads) -> None:
    """DL = dY R and dR = L dY (or dY L), over the letters of the spec; a bias gets the sum over its broadcast."""
    assert isinstance(node.attrs, MatmulAttrs)
    left, right, *rest = node.inputs
    if len(rest) > 1:
        raise UnsupportedOpError(f"no backward rule for a product with a quantised operand (in '{node.scope}')")
    grad = grads.first
    a, b, out = node.attrs.letters
    for value, letters, other, others in ((right, b, left, a), (left, a, right, b)):
        if value in tape.needs:
            tape.give(value, _product(tape, (grad, out), (other, others), value, letters))
    for bias in rest:
        if bias in tape.needs:
            tape.give(bias, _bias(tape, grad, node.attrs, tape.type(bias).rank))


def _bias(tape: Tape, grad: int, attrs: MatmulAttrs, rank: int) -> int:
    """A vector belongs to the columns of the right operand, wherever these stand in the result."""
    a, b, out = attrs.letters
    columns = [i for i, c in enumerate(out) if c in b and c not in a]
    if rank != 1 or len(columns) != 1 or columns[0] == len(out) - 1:
        return grad
    dims = tape.type(grad).dims
    over = tuple(i for i in range(len(dims)) if i != columns[0])
    kind = tape.type(grad).with_dims((dims[columns[0]],))
    return tape.emit("reduce", (grad,), [kind], ReduceAttrs("sum", over))[0]


def _product(tape: Tape, grad: tuple[int, str], other: tuple[int, str], value: int, letters: str) -> int:
    """The operand with the result's first letter stands left, as PyTorch has it for weights and for batches."""
    own = next((c for c in letters if (c in grad[1]) != (c in other[1])), "")
    left, right = (grad, other) if own in grad[1] else (other, grad)
    spec = MatmulAttrs(product_spec(left[1], right[1], letters))
    return tape.emit("matmul", (left[0], right[0]), [tape.type(value)], spec)[0]


def product_spec(left: str, right: str, out: str) -> str:
    """Write a spec with its letters in order of appearance.

    >>> product_spec("xyz", "xyw", "zw")
    'abc,abd->cd'
    """
    names = {c: ascii_lowercase[i] for i, c in enumerate(dict.fromkeys(left + right))}
    return f"{''.join(names[c] for c in left)},{''.join(names[c] for c in right)}->{''.join(names[c] for c in out)}"


def grouped_matmul(tape: Tape, node: Node, grads: Grads) -> None:
    """Rows by groups: each product again by groups, with the other operand turned."""
    a, b, *offsets = node.inputs
    grad = grads.first
    if a in tape.needs:
        turned = tape.permute(b, _last_two_swapped(tape.type(b).rank))
        attrs = GroupedAttrs()
        tape.give(a, tape.emit("grouped_matmul", (grad, turned, *offsets), [tape.type(a)], attrs)[0])
    if b in tape.needs:
        turned = tape.permute(a, _last_two_swapped(tape.type(a).rank))
        by_group = GroupedAttrs(weight_grad=tape.type(a).rank == 2)
        tape.give(b, tape.emit("grouped_matmul", (turned, grad, *offsets), [tape.type(b)], by_group)[0])


def _last_two_swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


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
    # The reduced dims as dims of size one.
    grad, result = (
        tape.reshape(v, tuple(1 if i in node.attrs.dims else d for i, d in enumerate(kind.dims)))
        for v in (grads.first, node.key)
    )
    if fn == "sum":
        tape.give(source, _spread(tape, grad, kind))
    elif fn == "mean":
        tape.give(source, tape.apply("div", _spread(tape, grad, kind)))
    elif fn == "var":
        _variance(tape, source, grad, node.attrs)
    elif fn == "norm":
        # Of the Euclidean length: x / |x|, nothing where that is zero; other lengths differ in one step.
        empty = tape.apply("compare", result, kind=TensorType(tape.type(result).dims, DType.BOOL))
        slope = tape.apply("where", tape.apply("div", source, result), empty)
        tape.give(source, tape.apply("mul", slope, grad))
    elif fn == "logsumexp":
        weights = tape.apply("exp", tape.apply("sub", source, result))
        tape.give(source, tape.apply("mul", grad, weights, kind=kind))
    else:
        _extreme(tape, source, grad, result, node.attrs)


def _spread(tape: Tape, grad: int, kind: TensorType) -> int:
    return tape.emit("expand", (grad,), [tape.type(grad).with_dims(kind.dims)])[0]


def _variance(tape: Tape, source: int, grad: int, attrs: ReduceAttrs) -> None:
    """2 / n (x - mean x)."""
    kind = tape.type(source)
    over = ReduceAttrs("mean", attrs.dims, keepdim=True)
    (mean,) = tape.emit("reduce", (source,), [kind.with_dims(tape.type(grad).dims)], over)
    slope = tape.apply("sub", source, mean)
    tape.give(source, tape.apply("mul", tape.apply("mul", grad), slope, kind=kind))


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


def attention(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of queries, keys and values, then of what else the scores were made with and can be learned."""
    q, k, v, *extras = node.inputs
    learned = [i for i in extras if i in tape.needs]
    inputs = (grads.first, q, k, v, *node.outputs, *extras)
    given = (q, k, v, *learned)
    outs = tape.emit("attention_bwd", inputs, [tape.type(i) for i in given], node.attrs)
    for value, grad in zip(given, outs, strict=True):
        tape.give(value, grad)


def experts(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of tokens, routing weights, both banks and their biases."""
    x, idx, weights, up, down, *biases = node.inputs
    inputs = (grads.first, x, idx, weights, up, down, *node.outputs[1:])
    given = (x, weights, up, down, *biases)
    outs = tape.emit("experts_bwd", inputs, [tape.type(i) for i in given], node.attrs)
    for value, grad in zip(given, outs, strict=True):
        tape.give(value, grad)


def norm(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of x, weight and bias from the row statistics that the forward node kept."""
    x, *weights = node.inputs
    inputs = (grads.first, x, *node.outputs[1:], *weights[:1])
    outs = tape.emit("norm_bwd", inputs, [tape.type(i) for i in node.inputs], node.attrs)
    for value, grad in zip(node.inputs, outs, strict=True):
        tape.give(value, grad)


def scan(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of the values and of all that is read with them; a state to begin with is no parameter."""
    attrs = node.attrs
    assert isinstance(attrs, ScanAttrs)
    given = node.inputs[:-1] if attrs.has_state else node.inputs
    back = ScanBwdAttrs(attrs.kind, attrs.chunk, attrs.has_state, tape.type(node.outputs[1]).dims[2])
    outs = tape.emit("scan_bwd", (grads.first, *node.inputs), [tape.type(i) for i in given], back)
    for value, grad in zip(given, outs, strict=True):
        tape.give(value, grad)


def conv(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of x, weight and bias; what an activation in the kernel had before it is made again."""
    attrs = node.attrs
    assert isinstance(attrs, ConvAttrs)
    given = node.inputs[:-1] if attrs.has_state else node.inputs
    wanted = given if attrs.causal else tuple(i for i in given if i in tape.needs)
    read = given if attrs.causal else given[:2]
    outs = tape.emit("conv_bwd", (grads.first, *read), [tape.type(i) for i in wanted], replace(attrs, has_state=False))
    for value, grad in zip(wanted, outs, strict=True):
        tape.give(value, grad)


def rope(tape: Tape, node: Node, grads: Grads) -> None:
    """The turn back; tables are no parameters."""
    x, cos, sin = node.inputs
    tape.give(x, tape.emit("rope_bwd", (grads.first, cos, sin), [tape.type(x)])[0])


def cross_entropy(tape: Tape, node: Node, grads: Grads) -> None:
    """The gradient of logits from the row statistics that the forward node kept."""
    logits, target = node.inputs
    inputs = (grads.first, logits, target, node.outputs[1])
    tape.give(logits, tape.emit("cross_entropy_bwd", inputs, [tape.type(logits)])[0])


RULES: Mapping[str, Rule] = {
    "reduce": reduce,
    "cumsum": cumsum,
    "softmax": softmax,
    "channel_norm": channel_norm,
    "matmul": matmul,
    "grouped_matmul": grouped_matmul,
    "attention": attention,
    "experts": experts,
    "norm": norm,
    "scan": scan,
    "conv": conv,
    "rope": rope,
    "cross_entropy": cross_entropy,
}
