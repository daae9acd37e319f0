"""Backward of pointwise functions, step by step as PyTorch's derivatives are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ...ir.errors import UnsupportedOpError
from ...ir.graph import Node
from ...ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from ...ir.types import DType, TensorType
from .tape import Grads, Rule, Tape

Step: TypeAlias = Callable[[Tape, Node, int], None]


def elementwise(tape: Tape, node: Node, grads: Grads) -> None:
    """Look the function up; what has no slope (comparisons, rounding) hands nothing on."""
    assert isinstance(node.attrs, ElementwiseAttrs)
    fns = node.attrs.fns
    if len(fns) == 1 and fns[0] in _FLAT:
        return
    if len(fns) != 1 or fns[0] not in _STEPS:
        raise UnsupportedOpError(
            f"no backward rule for the pointwise function '{'+'.join(fns)}' (in '{node.scope}'); there is one for "
            f"{', '.join(sorted(_STEPS))}"
        )
    _STEPS[fns[0]](tape, node, grads.first)


def _add(tape: Tape, node: Node, grad: int) -> None:
    for i in node.inputs:
        tape.give(i, grad)


def _sub(tape: Tape, node: Node, grad: int) -> None:
    first, *rest = node.inputs
    if not rest and tape.said(node).name.endswith("rsub"):
        first, rest = -1, [first]
    tape.give(first, grad)
    for i in rest:
        if i in tape.needs:
            tape.give(i, tape.apply("neg", grad))


def _mul(tape: Tape, node: Node, grad: int) -> None:
    if len(node.inputs) == 1:
        tape.give(node.inputs[0], tape.apply("mul", grad))
        return
    for i, other in (node.inputs, node.inputs[::-1]):
        if i in tape.needs:
            tape.give(i, tape.apply("mul", grad, other))


def _square(tape: Tape, node: Node, grad: int) -> None:
    """2 x."""
    (x,) = node.inputs
    tape.give(x, tape.apply("mul", grad, tape.apply("mul", x)))


def _addcmul(tape: Tape, node: Node, grad: int) -> None:
    """Of a + n b c: as it is to a, times n and the other factor to b and c."""
    first, *factors = node.inputs
    tape.give(first, grad)
    for i, other in (factors, factors[::-1]):
        if i in tape.needs:
            tape.give(i, tape.apply("mul", grad, tape.apply("mul", other)))


def _reciprocal(tape: Tape, node: Node, grad: int) -> None:
    """Of 1 / x: -y^2."""
    squared = tape.apply("mul", node.key, node.key)
    tape.give(node.inputs[0], tape.apply("mul", tape.apply("neg", grad), squared))


def _remainder(tape: Tape, node: Node, grad: int) -> None:
    """Of a - n b, with n = a / b rounded: 1 to a, -n to b."""
    a, *rest = node.inputs
    tape.give(a, grad)
    for b in (i for i in rest if i in tape.needs):
        times = tape.apply("floor_div", a, b, kind=tape.type(node.key))
        tape.give(b, tape.apply("mul", tape.apply("neg", grad), times))


def _softsign(tape: Tape, node: Node, grad: int) -> None:
    """Of x / (1 + |x|): 1 / (1 + |x|)^2."""
    below = tape.apply("square", tape.apply("add", tape.apply("abs", node.inputs[0])))
    tape.give(node.inputs[0], tape.apply("div", grad, below))


def _div(tape: Tape, node: Node, grad: int) -> None:
    if len(node.inputs) == 1:
        tape.give(node.inputs[0], tape.apply("div", grad))
        return
    a, b = node.inputs
    if b in tape.needs:
        ratio = tape.apply("div", tape.apply("div", a, b, kind=tape.type(node.key)), b)
        tape.give(b, tape.apply("mul", tape.apply("neg", grad), ratio))
    if a in tape.needs:
        tape.give(a, tape.apply("div", grad, b))


def _pow(tape: Tape, node: Node, grad: int) -> None:
    """Of x^n: n x^(n-1)."""
    slope = tape.apply("mul", tape.apply("pow", *node.inputs, kind=tape.type(node.key)))
    tape.give(node.inputs[0], tape.apply("mul", grad, slope))


def _exp(tape: Tape, node: Node, grad: int) -> None:
    tape.give(node.inputs[0], tape.apply("mul", grad, node.key))


def _log(tape: Tape, node: Node, grad: int) -> None:
    tape.give(node.inputs[0], tape.apply("div", grad, node.inputs[0]))


def _sqrt(tape: Tape, node: Node, grad: int) -> None:
    tape.give(node.inputs[0], tape.apply("div", grad, tape.apply("mul", node.key)))


def _rsqrt(tape: Tape, node: Node, grad: int) -> None:
    """Of x^(-1/2): -y^3 / 2."""
    half = tape.apply("mul", grad)
    tape.give(node.inputs[0], tape.apply("mul", half, tape.apply("pow", node.key)))


def _sin(tape: Tape, node: Node, grad: int) -> None:
    tape.give(node.inputs[0], tape.apply("mul", grad, tape.apply("cos", node.inputs[0])))


def _cos(tape: Tape, node: Node, grad: int) -> None:
    slope = tape.apply("neg", tape.apply("sin", node.inputs[0]))
    tape.give(node.inputs[0], tape.apply("mul", grad, slope))


def _erf(tape: Tape, node: Node, grad: int) -> None:
    """2 / sqrt(pi) exp(-x^2)."""
    bell = tape.apply("exp", tape.apply("neg", tape.apply("pow", node.inputs[0])))
    tape.give(node.inputs[0], tape.apply("mul", tape.apply("mul", bell), grad))


def _abs(tape: Tape, node: Node, grad: int) -> None:
    tape.give(node.inputs[0], tape.apply("mul", grad, tape.apply("sign", node.inputs[0])))


def _neg(tape: Tape, node: Node, grad: int) -> None:
    tape.give(node.inputs[0], tape.apply("neg", grad))


def _of_input(fn: str) -> Step:
    """A function whose backward is one function of the gradient and the input."""

    def step(tape: Tape, node: Node, grad: int) -> None:
        tape.give(node.inputs[0], tape.apply(fn, grad, node.inputs[0]))

    return step


def _of_result(fn: str) -> Step:
    """A function whose backward is one function of the gradient and the result."""

    def step(tape: Tape, node: Node, grad: int) -> None:
        tape.give(node.inputs[0], tape.apply(fn, grad, node.key))

    return step


def _dropout(tape: Tape, node: Node, grad: int) -> None:
    tape.give(node.inputs[0], tape.apply("dropout_bwd", grad, *node.outputs[1:]))


def _where(tape: Tape, node: Node, grad: int) -> None:
    """What was chosen gets the gradient, zero elsewhere; `where(x, mask)` and `where(x)` fill x where told."""
    first, *rest = node.inputs
    if tape.type(first).dtype is not DType.BOOL:
        tape.give(first, tape.apply("where", grad, *rest))
        return
    zero = tape.emit("fill", (), [TensorType((), tape.type(grad).dtype)], FillAttrs("constant"))[0]
    for position, i in enumerate(rest):
        if i in tape.needs:
            chosen = (grad, zero) if position == 0 else (zero, grad)
            tape.give(i, tape.apply("where", first, *chosen, kind=tape.type(grad)))


def _clamp(tape: Tape, node: Node, grad: int) -> None:
    x = node.inputs[0]
    inside = tape.apply("compare", x, kind=_truth(tape, x))
    zero = tape.emit("fill", (), [TensorType((), tape.type(grad).dtype)], FillAttrs("constant"))[0]
    tape.give(x, tape.apply("where", inside, grad, zero, kind=tape.type(grad)))


def _most(tape: Tape, node: Node, grad: int) -> None:
    """The larger (or smaller) of two gets the gradient, half of it where both are equal."""
    if len(node.inputs) == 1:
        _clamp(tape, node, grad)
        return
    for i in node.inputs:
        if i in tape.needs:
            equal = tape.apply("compare", *node.inputs, kind=_truth(tape, node.key))
            shared = tape.apply("where", equal, tape.apply("div", grad), grad, kind=tape.type(grad))
            less = tape.apply("compare", *node.inputs, kind=_truth(tape, node.key))
            tape.give(i, tape.apply("where", shared, less))


def _truth(tape: Tape, value: int) -> TensorType:
    return TensorType(tape.type(value).dims, DType.BOOL)


_FLAT = frozenset({"compare", "not", "and", "or", "floor", "floor_div", "round", "sign"})
_STEPS: Mapping[str, Step] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "pow": _pow, "exp": _exp, "log": _log,
    "sqrt": _sqrt, "rsqrt": _rsqrt, "sin": _sin, "cos": _cos, "erf": _erf, "abs": _abs, "dropout": _dropout,
    "square": _square, "addcmul": _addcmul, "reciprocal": _reciprocal, "remainder": _remainder, "softsign": _softsign,
    "where": _where, "clamp": _clamp, "max": _most, "min": _most,
    "silu": _of_input("silu_bwd"), "gelu": _of_input("gelu_bwd"), "softplus": _of_input("softplus_bwd"),
    "relu": _of_result("relu_bwd"), "tanh": _of_result("tanh_bwd"), "sigmoid": _of_result("sigmoid_bwd"),
}  # fmt: skip
RULES: Mapping[str, Rule] = {"elementwise": elementwise}
