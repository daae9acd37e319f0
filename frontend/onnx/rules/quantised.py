"""Tensors in low precision: weights that rest quantised, activations cast on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.quantise import QuantiseAttrs
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.types import DType, TensorType
from ..call import Call, Rule
from ..shapes.items import Item, Packed, dtype_of
from .images import convolved
from .pointwise import joined_dims
from .products import product
from .rows import reduced

# What com.microsoft computes of whole numbers with scales, element by element.
_LINEAR = {"QLinearAdd": "add", "QLinearMul": "mul", "QLinearSigmoid": "sigmoid", "QLinearLeakyRelu": "relu"}
_LINEAR_OF_TWO = ("QLinearAdd", "QLinearMul")


def _dequantise(call: Call) -> Sequence[Item]:
    """A stored weight stays as it rests until something reads it; a product reads it so."""
    x, scale = call.item(0), call.item(1)
    kind = TensorType(x.dims, scale.type.dtype)
    if x.stored and x.type.rank > 0:
        extra = tuple(i for i in (scale, call.optional(2)) if i is not None and i.stored and i.dims not in ((), (1,)))
        return (Item(kind, packed=Packed(x, extra, x.dims, x.type.dtype)),)
    return (call.pointwise("mul", [x], x.dims, kind.dtype),)


def _quantise(call: Call) -> Sequence[Item]:
    x = call.item(0)
    code = call.int_("output_dtype", 0)
    dtype = call.dtype(2) if call.has(2) else dtype_of(code, "the target") if code else DType.UINT8
    return call.emit("quantise", [x], [TensorType(x.dims, dtype)], QuantiseAttrs(1))


def _dynamic(call: Call) -> Sequence[Item]:
    """Scale and zero point of the tensor itself: it passes through memory twice."""
    x = call.item(0)
    (low,) = call.emit("quantise", [x], [TensorType(x.dims, DType.UINT8)], QuantiseAttrs(2))
    scale = reduced(call, x, "amax", tuple(range(x.type.rank)), False)
    return (low, scale, reduced(call, x, "amin", tuple(range(x.type.rank)), False, DType.UINT8))


def _stored(call: Call, index: int) -> Item:
    """A weight that is multiplied as integers."""
    b = call.item(index)
    return Item(b.type, call.build.weight(b, call.origin, b.dims, b.type.dtype)) if b.stored else b


def _linear_integer(call: Call) -> Sequence[Item]:
    """QLinearMatMul(a, scale, zero, b, scale, zero, y scale, y zero)."""
    return (product(call, call.item(0), _stored(call, 3), call.dtype(7)),)


def _integer(call: Call) -> Sequence[Item]:
    """MatMulInteger(a, b, zero, zero) and MatMulIntegerToFloat(a, b, scale, scale, zero, zero, bias)."""
    to_float = call.op == "MatMulIntegerToFloat"
    dtype = call.dtype(2) if to_float else DType.INT32
    bias = call.optional(6) if to_float else None
    return (product(call, call.item(0), _stored(call, 1), dtype, bias),)


def _dynamic_matmul(call: Call) -> Sequence[Item]:
    """DynamicQuantizeMatMul(a, b, b scale, b zero, bias): the rows are cast, the product is of integers."""
    a = call.item(0)
    (low,) = call.emit("quantise", [a], [TensorType(a.dims, DType.UINT8)], QuantiseAttrs(2))
    return (product(call, low, _stored(call, 1), a.type.dtype, call.optional(4)),)


def _integer_conv(call: Call) -> Sequence[Item]:
    """ConvInteger(x, w, zero, zero): the sums are of 32 bits."""
    return (convolved(call, call.item(0), _stored(call, 1), DType.INT32),)


def _linear_conv(call: Call) -> Sequence[Item]:
    """QLinearConv(x, scale, zero, w, scale, zero, y scale, y zero, bias)."""
    return (convolved(call, call.item(0), _stored(call, 3), call.dtype(7), call.optional(8)),)


def _linear_gemm(call: Call) -> Sequence[Item]:
    """QGemm(a, scale, zero, b, scale, zero, bias, y scale, y zero): of whole numbers where the result has a zero."""
    a, b = call.item(0), _stored(call, 3)
    a = call.permute(a, (1, 0)) if call.int_("transA", 0) else a
    b = call.permute(b, (1, 0)) if call.int_("transB", 0) else b
    dtype = call.dtype(8) if call.has(8) else call.dtype(1)
    return (product(call, a, b, dtype, call.optional(6)),)


def _linear_pointwise(call: Call) -> Sequence[Item]:
    """QLinearAdd and the like (a, scale, zero, b, scale, zero, y scale, y zero); of one tensor (x, scale, zero, ..)."""
    fn = _LINEAR[call.op]
    items = [call.item(0), *([call.item(3)] if call.op in _LINEAR_OF_TWO else [])]
    return (call.pointwise(fn, items, joined_dims(items), call.dtype(0)),)


def _linear_mean(call: Call) -> Sequence[Item]:
    """QLinearGlobalAveragePool(x, ...): channels last or first."""
    x = call.item(0)
    last = bool(call.int_("channels_last", 0))
    dims = tuple(range(1, x.type.rank - 1)) if last else tuple(range(2, x.type.rank))
    return (reduced(call, x, "mean", dims, True),)


def _linear_concat(call: Call) -> Sequence[Item]:
    """QLinearConcat(y scale, y zero, then each tensor with its scale and zero)."""
    parts = [call.item(k) for k in range(2, len(call.inputs), 3)]
    if not parts:
        raise NotUnderstoodError("QLinearConcat of nothing")
    return (call.concat(parts, call.axis(parts[0].type.rank)),)


def _linear_softmax(call: Call) -> Sequence[Item]:
    x = call.item(0)
    return call.emit("softmax", [x], [x.type], DimAttrs(call.axis(x.type.rank, -1)))


def packed_bits(call: Call, index: int, dims: tuple[int, ...], bits: int, extra: Sequence[Item]) -> Item:
    """Return a stored weight of so many bits a number; NotUnderstoodError where its bytes are not that many."""
    weight, kinds = call.item(index), {2: DType.UINT8, 4: DType.INT4, 8: DType.INT8}
    if bits not in (4, 8) or not weight.stored:
        raise NotUnderstoodError(f"weights of {bits} bits, {'stored' if weight.stored else 'computed'}; 4 or 8, stored")
    return Item(TensorType(dims, extra[0].type.dtype), packed=Packed(weight, tuple(extra), dims, kinds[bits]))


RULES: Mapping[str, Rule] = {
    "DequantizeLinear": _dequantise, "QuantizeLinear": _quantise, "DynamicQuantizeLinear": _dynamic,
    "QLinearMatMul": _linear_integer, "MatMulInteger": _integer, "QLinearConv": _linear_conv,
    "ConvInteger": _integer_conv,
}  # fmt: skip
CONTRIB: Mapping[str, Rule] = {
    "DequantizeLinear": _dequantise, "QuantizeLinear": _quantise, "MatMulIntegerToFloat": _integer,
    "DynamicQuantizeMatMul": _dynamic_matmul, "QLinearConv": _linear_conv, "QGemm": _linear_gemm,
    "QLinearGlobalAveragePool": _linear_mean, "QLinearConcat": _linear_concat, "QLinearSoftmax": _linear_softmax,
    **dict.fromkeys(_LINEAR, _linear_pointwise),
}  # fmt: skip
