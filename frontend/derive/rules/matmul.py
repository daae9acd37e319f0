"""Backward of matrix products and convolutions: two products more, and the sum of a bias's gradient over all rows."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase

from ....ir.errors import UnsupportedOpError
from ....ir.graph import Node
from ....ir.ops.fused.experts import GroupedAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.ops.tensors.normalize import ReduceAttrs
from ..rule import Grads, Rule
from ..tape import Tape


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
    spec = MatmulAttrs(spec_of(left[1], right[1], letters))
    return tape.emit("matmul", (left[0], right[0]), [tape.type(value)], spec)[0]


def spec_of(left: str, right: str, out: str) -> str:
    """Write a spec with its letters in order of appearance.

    >>> spec_of("xyz", "xyw", "zw")
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


def conv(tape: Tape, node: Node, grads: Grads) -> None:
    """One op makes what is asked of the gradients of the input, the weight and the bias."""
    asked = [i for i in node.inputs if i in tape.needs]
    made = tape.emit("conv_bwd", (grads.first, *node.inputs[:2]), [tape.type(i) for i in asked], node.attrs)
    for value, grad in zip(asked, made, strict=True):
        tape.give(value, grad)


def _last_two_swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


RULES: Mapping[str, Rule] = {"matmul": matmul, "grouped_matmul": grouped_matmul, "conv": conv}
