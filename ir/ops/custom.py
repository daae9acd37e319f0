"""An operator of a user's own, priced by formulas given for it: sums and products of the sizes of its arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ..errors import ParseError
from ..graph import Attrs
from ..records import dataclass
from ..sizes.expr import Expr, as_expr
from ..types import TensorType
from .base import ZERO, OpCall, OpClass, OpDef, Work, traffic

NAME = "custom"


@dataclass(frozen=True, slots=True)
class CustomAttrs(Attrs):
    """`name` of the operator, `names` of its inputs, and formulas; without `num_bytes` all is read and written once.

    `vector_flops` run on vector units, `tensor_flops` on matrix units. In a formula `x[0]` is a dim of the argument x,
    `x.numel` its elements and `x.bytes` its bytes; `out` is the result, `out1` the second one.
    """

    name: str
    names: tuple[str, ...]
    tensor_flops: str = ""
    vector_flops: str = ""
    num_bytes: str = ""


def evaluated(formula: str, types: Mapping[str, TensorType]) -> Expr:
    """Return a formula over the sizes of tensors as an expression; ParseError says what is no size.

    >>> from slipstick.ir.types import DType
    >>> x = TensorType((4, 8), DType.BF16)
    >>> str(evaluated("2 * x.numel * x[1] + x.bytes / 2", {"x": x}))
    '544'
    """
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
    except SyntaxError as error:
        raise ParseError(f"'{formula}' is no formula: {error.msg}") from error
    return _value(tree, types, formula)


def _value(node: ast.expr, types: Mapping[str, TensorType], formula: str) -> Expr:
    match node:
        case ast.Constant(value=int() | float() as number):
            return as_expr(1) * number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, types, formula)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if power >= 0:
            made, base = as_expr(1), _value(left, types, formula)
            for _ in range(power):
                made = made * base
            return made
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, _value(left, types, formula), _value(right, types, formula), formula)
        case ast.Attribute(value=ast.Name(id=name), attr="numel") if name in types:
            return types[name].numel
        case ast.Attribute(value=ast.Name(id=name), attr="bytes") if name in types:
            return types[name].num_bytes
        case ast.Subscript(value=ast.Name(id=name), slice=index) if name in types:
            kind = types[name]
            try:
                return as_expr(kind.dims[int(ast.literal_eval(index))])
            except (ValueError, TypeError, IndexError) as error:
                raise ParseError(
                    f"'{formula}': {name} has dims 0 to {kind.rank - 1}, not {ast.unparse(index)}"
                ) from error
    what = ast.unparse(node)
    known = ", ".join(types) or "nothing"
    raise ParseError(
        f"'{formula}': '{what}' is no size; there are tensors {known}, each with dims as x[0], x.numel and x.bytes"
    )


def _combined(op: ast.operator, left: Expr, right: Expr, formula: str) -> Expr:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() if len(right.terms) == 1:
            return left / right
    raise ParseError(f"'{formula}': formulas have +, -, *, ** by a number, and / by one product")


def types_of(call: OpCall) -> Mapping[str, TensorType]:
    """Return the tensors of a call by the names that formulas have for them."""
    given = dict(zip(call.attrs_as(CustomAttrs).names, call.inputs, strict=False))
    return given | {f"out{i or ''}": t for i, t in enumerate(call.outputs)}


def _check(call: OpCall) -> Iterator[str]:
    attrs, types = call.attrs_as(CustomAttrs), types_of(call)
    for formula in (attrs.tensor_flops, attrs.vector_flops, attrs.num_bytes):
        try:
            evaluated(formula or "0", types)
        except ParseError as error:
            yield str(error)


def _work(call: OpCall) -> Work:
    """What the formulas say, of the sizes that a rank has."""
    attrs, types = call.attrs_as(CustomAttrs), types_of(call)
    once = traffic(call)
    moved = evaluated(attrs.num_bytes, types) if attrs.num_bytes else None
    return Work(
        tensor_flops=evaluated(attrs.tensor_flops or "0", types),
        vector_flops=evaluated(attrs.vector_flops or "0", types),
        read_bytes=once.read_bytes if moved is None else moved,
        write_bytes=once.write_bytes if moved is None else ZERO,
    )


OPS = (
    OpDef(
        NAME,
        OpClass.CUSTOM,
        _work,
        "an operator of a user's own, priced by the formulas given for it",
        _check,
        CustomAttrs,
        min_inputs=0,
        num_outputs=None,
    ),
)
