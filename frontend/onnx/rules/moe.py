"""Banks of experts: MoE and QMoE of com.microsoft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....ir.errors import NotUnderstoodError
from ....ir.ops.fused.experts import ExpertsAttrs
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.sizes.expr import as_dim, as_expr
from ....ir.types import DType, TensorType
from ..call import Call, Rule, numel
from ..shapes.items import Item


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


RULES: Mapping[str, Rule] = {"MoE": _bank, "QMoE": _bank}
