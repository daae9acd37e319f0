"""Operators of com.microsoft that are no attention: fused norms, activations and products, packed weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.types import DType
from ..call import Call, Rule
from ..shapes.items import Item
from . import (
    attention as rules_attention,
)
from . import (
    images as rules_images,
)
from . import (
    moe as rules_moe,
)
from . import (
    pointwise as rules_pointwise,
)
from . import (
    quantised as rules_quantised,
)
from . import (
    rows as rules_rows,
)
from .data import embedded
from .pointwise import joined_dims
from .products import linear, product, turned
from .quantised import packed_bits
from .rows import norm

_ACTIVATIONS = {"BiasGelu": "gelu", "FastGelu": "gelu", "QuickGelu": "silu", "Gelu": "gelu", "Swish": "silu"}


def _skip_norm(call: Call) -> Sequence[Item | None]:
    """Add what skipped the layer (and a bias), then normalise; the sum is a result of its own."""
    rms = call.op == "SkipSimplifiedLayerNormalization"
    parameters = [i for i in (call.optional(2), None if rms else call.optional(3)) if i is not None]
    bias = call.optional(3 if rms else 4)
    terms = [call.item(0), call.item(1), *([bias] if bias is not None else [])]
    total = call.pointwise("add", terms, joined_dims(terms), terms[0].type.dtype)
    y, row = norm(call, total, parameters, "rms" if rms else "layer")
    return (y, row, row, total)


def _embedding_norm(call: Call) -> Sequence[Item | None]:
    """EmbedLayerNormalization(ids, segments, words, positions, segment table, gamma, beta): three lookups, one norm."""
    ids, words, positions = call.item(0), call.item(2), call.item(3)
    if words.type.rank != 2 or positions.type.rank != 2 or ids.type.rank != 2:
        raise NotUnderstoodError(f"tables {words.type} and {positions.type} for {ids.type}")
    terms = [embedded(call, ids, words), call.slice(positions, 0, 0, ids.dims[1])]
    if call.has(1) and call.has(4):
        terms.append(embedded(call, call.item(1), call.item(4)))
    total = call.pointwise("add", terms, terms[0].dims, words.type.dtype)
    y, _ = norm(call, total, [i for i in (call.optional(5), call.optional(6)) if i is not None], "layer")
    return (y, None, total)


def _activation(call: Call) -> Sequence[Item]:
    terms = [i for i in call.inputs[:2] if i is not None]
    return (call.pointwise(_ACTIVATIONS[call.op], terms, terms[0].dims, terms[0].type.dtype),)


def _split_gelu(call: Call) -> Sequence[Item]:
    """BiasSplitGelu: one half of the channels times GELU of the other."""
    x = call.item(0)
    half = x.dims[-1] // 2 if x.dims and isinstance(x.dims[-1], int) else 0
    if not half:
        raise NotUnderstoodError(f"BiasSplitGelu of {x.type}")
    return (call.emit("elementwise", [x], [x.type.with_dims((*x.dims[:-1], half))], rules_rows.fns("gelu", "mul"))[0],)


def _add(call: Call) -> Sequence[Item]:
    terms = [i for i in call.inputs if i is not None]
    return (call.pointwise("add", terms, joined_dims(terms), terms[0].type.dtype),)


def _bias_softmax(call: Call) -> Sequence[Item]:
    x = _add(call)[0]
    return (call.emit("softmax", [x], [x.type], DimAttrs(x.type.rank - 1))[0],)


def _fused_matmul(call: Call) -> Sequence[Item]:
    a, b = call.item(0), call.item(1)
    if call.int_("transBatchA", 0) or call.int_("transBatchB", 0):
        raise NotUnderstoodError("FusedMatMul with transBatchA or transBatchB")
    a = _last_turned(call, a) if call.int_("transA", 0) else a
    b = _last_turned(call, b) if call.int_("transB", 0) else b
    return (product(call, a, b),)


def _last_turned(call: Call, x: Item) -> Item:
    if x.type.rank == 2:
        return turned(call, x)
    return call.permute(x, (*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2))


def _fused_gemm(call: Call) -> Sequence[Item]:
    a, b = call.item(0), call.item(1)
    y = linear(call, a, b, call.optional(2), bool(call.int_("transA", 0)), bool(call.int_("transB", 0)))
    fn = call.text("activation", "").lower()
    return (call.pointwise(fn, [y], y.dims, y.type.dtype) if fn else y,)


def _matmul_bits(call: Call) -> Sequence[Item]:
    """MatMulNBits(a, b, scales, zeros, groups, bias): b is [n, k / block, bytes of a block]."""
    n, k = call.int_("N"), call.int_("K")
    block, bits = call.int_("block_size"), call.int_("bits", 4)
    if min(n, k, block) < 1:
        raise NotUnderstoodError(f"N = {n}, K = {k}, block_size = {block}")
    blocks = -(-k // block)
    scales = [_laid(i, n, blocks) for i in (call.item(2), call.optional(3)) if i is not None]
    weight = packed_bits(call, 1, (n, k), bits, scales)
    return (product(call, call.item(0), turned(call, weight), bias=call.optional(5)),)


def _laid(item: Item, n: int, blocks: int) -> Item:
    """Scales as [n, blocks], zero points, which are packed, as [n, their share]."""
    numel = 1
    for d in item.dims:
        numel *= d if isinstance(d, int) else 0
    if numel % n or not numel or not item.stored:
        raise NotUnderstoodError(f"scales {item.type} for {n} rows of {blocks} blocks")
    return Item(item.type.with_dims((n, numel // n)), stored=item.stored)


def _gather_quantised(call: Call) -> Sequence[Item]:
    """GatherBlockQuantized(table, ids, scales, zeros): rows of a table in low precision, widened."""
    table, ids, scales = call.item(0), call.item(1), call.item(2)
    bits, axis = call.int_("bits", 4), call.int_("gather_axis", 0)
    if table.type.rank != 2 or axis != 0 or not table.stored or bits not in (4, 8):
        raise NotUnderstoodError(f"{table.type} of {bits} bits gathered along axis {axis}: a stored table of rows only")
    rows, width = table.dims
    packed = bits == 4 and table.type.dtype is DType.UINT8
    dims = (rows, width * 2 if packed and isinstance(width, int) else width)
    kind = DType.INT4_GROUP if bits == 4 else DType.INT8
    value = call.build.weight(table, call.origin, dims, kind)
    low = Item(table.type.with_dims(dims), value)
    return (embedded(call, ids, Item(type(low.type)(dims, scales.type.dtype), value)),)


RULES: Mapping[str, Rule] = {
    **{name: rule for name, rule in rules_rows.RULES.items() if name.endswith("LayerNormalization")},
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    "EmbedLayerNormalization": _embedding_norm,
    **dict.fromkeys(_ACTIVATIONS, _activation),
    "BiasSplitGelu": _split_gelu, "BiasAdd": _add, "BiasSoftmax": _bias_softmax, "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul, "FusedGemm": _fused_gemm, "MatMulNBits": _matmul_bits,
    "GatherBlockQuantized": _gather_quantised, "Trilu": rules_pointwise.RULES["Trilu"],
    "FusedConv": rules_images.RULES["FusedConv"],
    **rules_attention.CONTRIB, **rules_quantised.CONTRIB, **rules_moe.RULES,
}  # fmt: skip
