"""Attention in its parts: heads apart, rotary tables, caches, and the fused kernel."""

from __future__ import annotations

from dataclasses import replace

from ....ir.errors import NotUnderstoodError
from ....ir.graph import Role, Workload
from ....ir.ops.fused.attention import AttentionAttrs
from ....ir.ops.tensors.layout import ConcatAttrs
from ....ir.sizes.expr import Dim, as_dim, divide_exactly, symbol
from ....ir.types import DType, TensorType
from ..call import Call, numel
from ..shapes.items import Item
from .views import append

MAX_HEADS = 2**20


def heads_of(call: Call, name: str, default: int | None = None) -> int:
    """Return a number of heads; NotUnderstoodError for none."""
    found = call.int_(name, default)
    if not 0 < found <= MAX_HEADS:
        raise NotUnderstoodError(f"{name} = {found}")
    return found


def by_head(call: Call, x: Item, heads: int) -> Item:
    """See [batch, length, heads x d] as [batch, heads, length, d]; what has heads already stays."""
    if x.type.rank == 4:
        return x
    return call.permute(with_heads(call, x, heads), (0, 2, 1, 3))


def with_heads(call: Call, x: Item, heads: int) -> Item:
    """See [batch, length, heads x d] as [batch, length, heads, d]."""
    if x.type.rank != 3:
        raise NotUnderstoodError(f"{x.type} must be [batch, length, hidden]")
    width = divide_exactly(x.dims[2], heads)
    if not isinstance(width, int) or width < 1:
        raise NotUnderstoodError(f"{heads} heads do not divide {x.dims[2]}")
    return call.reshape(x, (x.dims[0], x.dims[1], heads, width))


def rows_of_table(call: Call, table: Item, length: Dim) -> Item:
    """See the rows of a rotary table that a step needs, as [1, 1, length, d]; which ones makes no difference."""
    if table.type.rank == 2:
        table = call.slice(table, 0, 0, length)
        return call.reshape(table, (1, 1, *table.dims))
    if table.type.rank == 3:
        return call.reshape(table, (table.dims[0], 1, *table.dims[1:]))
    return table


def rotated(call: Call, x: Item, cos: Item, sin: Item) -> Item:
    """Rotate [batch, heads, length, d]; with tables for a part of d only that part."""
    length, width = x.dims[2], x.dims[3]
    for table in (cos, sin):
        call.build.as_buffer(call.value(table))
    tables = [rows_of_table(call, t, length) for t in (cos, sin)]
    half = tables[0].dims[-1]
    turned = as_dim(half * 2) if isinstance(half, int) else half
    if not isinstance(turned, int) or not isinstance(width, int) or turned >= width:
        return call.emit("rope", [x, *tables], [x.type])[0]
    part = call.emit("rope", [call.slice(x, 3, 0, turned), *tables], [x.type.with_dims((*x.dims[:3], turned))])[0]
    return call.emit("concat", [part, call.slice(x, 3, turned, width - turned)], [x.type], ConcatAttrs(3))[0]


def past_of(call: Call, index: int, what: str, is_buffer: bool = True) -> Item | None:
    """Return a cache that is an input; one of a fixed length may be a buffer, of which kv entries are filled."""
    item = call.optional(index)
    if item is None or item.value is None:
        return None
    value = call.build.flat.values[item.value]
    if value.role not in (Role.INPUT, Role.CACHE) or value.type.rank != 4:
        return item
    call.build.as_cache(item.value, what)
    if not is_buffer or not isinstance(item.dims[2], int) or item.dims[2] == 0:
        return item
    call.build.max_positions = max(call.build.max_positions, item.dims[2])
    return filled(call, item, (item.dims[0], item.dims[1], _filled_length(call), item.dims[3]))


def _filled_length(call: Call) -> Dim:
    return symbol("kv") if call.build.workload is Workload.DECODE else 0


def filled(call: Call, item: Item, dims: tuple[Dim, ...]) -> Item:
    """Give a cache the dims of what is in it: [batch, heads, kv, d]."""
    assert item.value is not None
    value = call.build.flat.values[item.value]
    kind = value.type.with_dims(dims)
    call.build.flat.values[item.value] = replace(value, type=kind)
    return Item(kind, item.value)


def cached(call: Call, past: tuple[Item | None, Item | None], k: Item, v: Item) -> tuple[Item, Item]:
    """Put new keys and values behind those of earlier steps."""
    return append(call, past[0], k, 2, "keys"), append(call, past[1], v, 2, "values")


def attended(
    call: Call, q: Item, k: Item, v: Item, attrs: AttentionAttrs, sinks: Item | None = None, bias: Item | None = None
) -> Item:
    """Write fused attention over [batch, heads, length, d]; the result is [batch, length, heads, d of v]."""
    for x in (q, k, v):
        if x.type.rank != 4 or not isinstance(x.dims[3], int) or x.dims[3] < 1:
            raise NotUnderstoodError(f"{x.type} must be [batch, heads, length, head dim]")
    if divide_exactly(q.dims[1], k.dims[1]) is None:
        raise NotUnderstoodError(f"{q.dims[1]} query heads cannot share {k.dims[1]} key-value heads evenly")
    b, h, s, _ = q.dims
    out = TensorType((b, s, h, v.dims[3]), q.type.dtype)
    lse = TensorType((b, h, s), DType.FP32)
    bias = None if bias is None else _as_scores(call, bias, (b, h, s, k.dims[2]))
    extra = [x for x in (sinks, bias) if x is not None]
    softcap = max(0.0, call.real("softcap", 0.0))
    attrs = replace(attrs, sinks=sinks is not None, bias=bias is not None, softcap=softcap)
    return call.emit("attention", [q, k, v, *extra], [out, lse], attrs)[0]


def _as_scores(call: Call, bias: Item, scores: tuple[Dim, ...]) -> Item | None:
    """See a bias with as many dims as scores have; one for fewer keys than there are is of the new ones alone."""
    item = call.reshape(bias, (*(1,) * (4 - bias.type.rank), *bias.dims))
    fits = all(d in (1, full) for d, full in zip(item.dims[:3], scores[:3], strict=True)) and item.dims[3] == scores[3]
    if not fits:
        call.build.note(f"a bias of {bias.type} for scores [{', '.join(map(str, scores))}] is not counted")
    return item if fits else None


def joined_heads(call: Call, out: Item) -> Item:
    """See [batch, length, heads, d] as [batch, length, heads x d]."""
    return call.reshape(out, (*out.dims[:2], numel(out.dims[2:])))
