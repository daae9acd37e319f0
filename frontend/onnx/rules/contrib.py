"""Operators of com.microsoft that are no attention: fused norms, activations and products, packed weights, experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.ops.fused.experts import ExpertsAttrs
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.records import dataclass
from ....ir.sizes.expr import as_dim, as_expr
from ....ir.types import DType, TensorType
from ..call import Call, Rule, numel
from ..shapes.items import Item
from . import attention, images, pointwise, products, rows
from .data import embedded
from .pointwise import joined_dims
from .products import linear, packed_bits, product, turned
from .rows import fns, norm


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the weights of the three projections and their biases stand among the inputs."""

    up: int
    up_bias: int
    down: int
    down_bias: int
    third: int


_PLACES = {"MoE": _Places(2, 3, 4, 5, 6), "QMoE": _Places(2, 4, 5, 7, 8)}


def _bank(call: Call) -> Sequence[Item]:
    """MoE(x, router, fc1, bias, fc2, bias, fc3, bias): the k best experts a row; QMoE has scales behind weights."""
    at, x = _PLACES[call.op], call.item(0)
    if x.type.rank < 2 or not isinstance(x.dims[-1], int):
        raise NotUnderstoodError(f"tokens {x.type} must be [.., hidden]")
    hidden = x.dims[-1]
    rows = call.reshape(x, (numel(x.dims[:-1]), hidden))
    pack = 2 if call.op == "QMoE" and call.int_("expert_weight_bits", 4) == 4 else 1
    up, down = _weight(call, at.up, pack), _weight(call, at.down, pack)
    gated = call.has(at.third) or call.text("activation_type", "relu").lower() == "swiglu"
    transposed, ffn = _layout(up.dims, down.dims, hidden, gated and not call.has(at.third))
    values = _values(call, up, down, call.has(at.third), transposed)
    biases = [i for i in (call.optional(at.up_bias), call.optional(at.down_bias)) if i is not None]
    bias = len(biases) == 2
    width = ffn * 2 if gated else ffn
    idx, weights = _routed(call, rows)
    copies = as_dim(as_expr(rows.dims[0]) * call.int_("k", 1))
    kinds = [rows.type, *(TensorType((copies, n), x.type.dtype) for n in (hidden, width, ffn, hidden))]
    inputs = [rows, idx, weights, *values, *(biases if bias else [])]
    out = call.emit("experts", inputs, kinds, ExpertsAttrs(gated, transposed, bias))[0]
    return (call.reshape(out, x.dims),)


@dataclass(frozen=True, slots=True)
class _Weight:
    """A stored bank and the dims of its numbers."""

    item: Item
    dims: tuple[int, int, int]
    dtype: DType


def _weight(call: Call, index: int, pack: int) -> _Weight:
    item = call.item(index)
    a, b, c = item.dims if item.type.rank == 3 else (None, None, None)
    if not (isinstance(a, int) and isinstance(b, int) and isinstance(c, int)) or not item.stored:
        raise NotUnderstoodError(f"experts {item.type} must be stored as [experts, .., ..]")
    if call.op == "MoE":
        return _Weight(item, (a, b, c), item.type.dtype)
    return _Weight(item, (a, b, c * pack), DType.INT4_GROUP if pack == 2 else DType.INT8)


def _layout(up: tuple[int, int, int], down: tuple[int, int, int], hidden: int, fused: bool) -> tuple[bool, int]:
    """Whether weights are [experts, in, out], and the inner size; by the dims, for both are in use."""
    for transposed in (False, True):
        ffn = down[1] if transposed else down[2]
        out = ffn * 2 if fused else ffn
        want = ((hidden, out), (ffn, hidden)) if transposed else ((out, hidden), (hidden, ffn))
        if (up[1:], down[1:]) == want and up[0] == down[0] and min(up) > 0:
            return transposed, ffn
    raise NotUnderstoodError(f"experts {list(up)} and {list(down)} for rows of {hidden}")


def _values(call: Call, up: _Weight, down: _Weight, third: bool, transposed: bool) -> list[Item]:
    """The two banks; a third one stands beside the first, as kernels keep them."""
    n, a, b = up.dims
    dims = ((n, a, 2 * b) if transposed else (n, 2 * a, b)) if third else up.dims
    made: list[Item] = []
    for w, shape in ((up, dims), (down, down.dims)):
        value = call.build.weight(w.item, call.origin, shape, w.dtype)
        made.append(Item(call.build.flat.values[value].type, value))
    return made


def _routed(call: Call, rows: Item) -> tuple[Item, Item]:
    """The best k experts a row and their weights."""
    router, k = call.item(1), call.int_("k", 1)
    if router.type.rank != 2 or router.dims[0] != rows.dims[0] or k < 1:
        raise NotUnderstoodError(f"router {router.type} for {rows.type}, k = {k}")
    scores = call.emit("softmax", [router], [router.type], DimAttrs(1))[0]
    dims = (rows.dims[0], k)
    kinds = [TensorType(dims, router.type.dtype), TensorType(dims, DType.INT64)]
    values, idx = call.emit("topk", [scores], kinds, DimAttrs(1))
    return idx, values


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
    return (call.emit("elementwise", [x], [x.type.with_dims((*x.dims[:-1], half))], fns("gelu", "mul"))[0],)


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
    number, width = table.dims
    packed = bits == 4 and table.type.dtype is DType.UINT8
    dims = (number, width * 2 if packed and isinstance(width, int) else width)
    kind = DType.INT4_GROUP if bits == 4 else DType.INT8
    value = call.build.weight(table, call.origin, dims, kind)
    low = Item(table.type.with_dims(dims), value)
    return (embedded(call, ids, Item(type(low.type)(dims, scales.type.dtype), value)),)


RULES: Mapping[str, Rule] = {
    **{name: rule for name, rule in rows.RULES.items() if name.endswith("LayerNormalization")},
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    "EmbedLayerNormalization": _embedding_norm,
    **dict.fromkeys(_ACTIVATIONS, _activation),
    "BiasSplitGelu": _split_gelu,
    "BiasAdd": _add,
    "BiasSoftmax": _bias_softmax,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "FusedGemm": _fused_gemm,
    "MatMulNBits": _matmul_bits,
    "GatherBlockQuantized": _gather_quantised,
    "Trilu": pointwise.RULES["Trilu"],
    "FusedConv": images.RULES["FusedConv"],
    **attention.CONTRIB,
    **products.CONTRIB,
    "MoE": _bank,
    "QMoE": _bank,
}
