"""Attention operators, of the standard and of com.microsoft: heads apart, rotary tables, caches, the fused kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....ir.errors import NotUnderstoodError
from ....ir.graph import Role, Workload
from ....ir.ops.fused.attention import AttentionAttrs
from ....ir.ops.tensors.layout import ConcatAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.sizes.expr import Dim, as_dim, divide_exactly, symbol
from ....ir.types import DType, TensorType
from ..call import Call, Rule, numel
from ..shapes.items import Item
from .products import product
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
    filled_length = symbol("kv") if call.build.workload is Workload.DECODE else 0
    return filled(call, item, (item.dims[0], item.dims[1], filled_length, item.dims[3]))


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


def _standard(call: Call) -> Sequence[Item | None]:
    """Attention(Q, K, V, mask, past key, past value): heads in their own dim, or side by side."""
    given = [call.item(k) for k in range(3)]
    by_heads = given[0].type.rank == 4
    heads, kv_heads = (0, 0) if by_heads else (heads_of(call, "q_num_heads"), heads_of(call, "kv_num_heads"))
    q, k, v = (by_head(call, x, n) for x, n in zip(given, (heads, kv_heads, kv_heads), strict=True))
    if call.has(4) or _makes(call, 1):
        k, v = cached(call, (past_of(call, 4, "keys", False), past_of(call, 5, "values", False)), k, v)
    causal = bool(call.int_("is_causal", 0)) or call.has(4)
    out = attended(call, q, k, v, AttentionAttrs(causal), bias=call.optional(3))
    y = call.permute(out, (0, 2, 1, 3)) if by_heads else joined_heads(call, out)
    return (y, k, v, _scores(call, q, k) if _makes(call, 3) else None)


def _scores(call: Call, q: Item, k: Item) -> Item:
    """Scores that are a result of their own, [batch, heads, length, keys]: a product, as no fused kernel keeps them."""
    (b, h, s, d), (groups, t) = q.dims, (k.dims[1], k.dims[2])
    shared = divide_exactly(h, groups)
    if shared is None:
        raise NotUnderstoodError(f"{h} query heads cannot share {groups} key heads evenly")
    by_group = call.reshape(q, (b, groups, shared, s, d))
    kind = TensorType((b, groups, shared, s, t), q.type.dtype)
    made = call.emit("matmul", [by_group, k], [kind], MatmulAttrs("bgqsd,bgtd->bgqst"))[0]
    return call.reshape(made, (b, h, s, t))


def _makes(call: Call, index: int) -> bool:
    return index < len(call.node.output) and bool(call.node.output[index])


def _grouped(call: Call) -> Sequence[Item | None]:
    """GroupQueryAttention(query, key, value, pasts, lengths, total, cos, sin, positions, bias, sinks)."""
    heads, kv_heads = heads_of(call, "num_heads"), heads_of(call, "kv_num_heads")
    q, k, v = _projections(call, heads, kv_heads)
    if call.int_("do_rotary", 0):
        q, k = (rotated(call, x, call.item(7), call.item(8)) for x in (q, k))
    k, v = cached(call, (past_of(call, 3, "keys"), past_of(call, 4, "values")), k, v)
    attrs = AttentionAttrs(True, max(0, call.int_("local_window_size", -1)))
    out = attended(call, q, k, v, attrs, call.optional(11), call.optional(10))
    return (joined_heads(call, out), k, v)


def _projections(call: Call, heads: int, kv_heads: int) -> tuple[Item, Item, Item]:
    """Queries, keys and values by head; without keys they stand side by side in the first input."""
    x = call.item(0)
    if call.has(1):
        k, v = by_head(call, call.item(1), kv_heads), by_head(call, call.item(2), kv_heads)
        return by_head(call, x, heads), k, v
    q, k, v = parted(call, x, (heads, kv_heads, kv_heads), x.type.rank - 1)
    return by_head(call, q, heads), by_head(call, k, kv_heads), by_head(call, v, kv_heads)


def parted(call: Call, x: Item, shares: Sequence[int], axis: int) -> list[Item]:
    """Take a dim apart by shares of it."""
    each = divide_exactly(x.dims[axis], sum(shares))
    if not isinstance(each, int) or each < 1:
        raise NotUnderstoodError(f"{x.dims[axis]} is not distributed to {sum(shares)} heads")
    starts = [sum(shares[:i]) for i in range(len(shares))]
    return [call.slice(x, axis, at * each, n * each) for at, n in zip(starts, shares, strict=True)]


def _multi_head(call: Call) -> Sequence[Item | None]:
    """MultiHeadAttention(query, key, value, bias, padding, attention bias, past key, past value)."""
    heads = heads_of(call, "num_heads")
    q, k, v = _packed_or_apart(call, heads)
    if call.has(3):
        q, k, v = _with_biases(call, (q, k, v), call.item(3))
    if call.has(6) or _makes(call, 1):
        k, v = cached(call, (past_of(call, 6, "keys"), past_of(call, 7, "values")), k, v)
    out = attended(call, q, k, v, AttentionAttrs(bool(call.int_("unidirectional", 0))), bias=call.optional(5))
    return (joined_heads(call, out), k, v, None)


def _packed_or_apart(call: Call, heads: int) -> tuple[Item, Item, Item]:
    x = call.item(0)
    if x.type.rank == 5:
        q, k, v = (call.permute(call.slice(x, 3, n, 1, drop=True), (0, 2, 1, 3)) for n in range(3))
        return q, k, v
    key = call.item(1)
    if key.type.rank == 5:
        k, v = (call.permute(call.slice(key, 3, n, 1, drop=True), (0, 2, 1, 3)) for n in range(2))
        return by_head(call, x, heads), k, v
    return by_head(call, x, heads), by_head(call, key, heads), by_head(call, call.item(2), heads)


def _with_biases(call: Call, parts: tuple[Item, Item, Item], bias: Item) -> tuple[Item, Item, Item]:
    """One vector holds the biases of queries, keys and values by head."""
    made: list[Item] = []
    start = 0
    for x in parts:
        heads, width = x.dims[1], x.dims[3]
        if not isinstance(heads, int) or not isinstance(width, int):
            raise NotUnderstoodError(f"a bias for {x.type}")
        piece = call.reshape(call.slice(bias, 0, start, heads * width), (heads, 1, width))
        made.append(call.pointwise("add", [x, piece], x.dims, x.type.dtype))
        start += heads * width
    return made[0], made[1], made[2]


def _with_projection(call: Call) -> Sequence[Item | None]:
    """Attention of com.microsoft(x, weights, bias, mask, past): the projection is part of the operator."""
    heads = heads_of(call, "num_heads")
    y = product(call, call.item(0), call.item(1), bias=call.optional(2))
    sizes = call.ints("qkv_hidden_sizes")
    q, k, v = parted(call, y, (1, 1, 1), 2) if sizes is None else _by_sizes(call, y, sizes)
    q, k, v = (by_head(call, x, heads) for x in (q, k, v))
    if call.has(4):
        past = call.item(4)
        call.build.as_cache(call.value(past), "states")
        held = [call.slice(past, 0, n, 1, drop=True) for n in range(2)] if past.dims[3] != 0 else [None, None]
        k, v = cached(call, (held[0], held[1]), k, v)
    causal = bool(call.int_("unidirectional", 0)) or call.has(4)
    out = attended(call, q, k, v, AttentionAttrs(causal), bias=call.optional(5))
    return (joined_heads(call, out), None)


def _by_sizes(call: Call, y: Item, sizes: Sequence[int]) -> list[Item]:
    if len(sizes) != 3 or min(sizes) < 1 or sum(sizes) != y.dims[2]:
        raise NotUnderstoodError(f"qkv_hidden_sizes {list(sizes)} of {y.dims[2]}")
    starts = (0, sizes[0], sizes[0] + sizes[1])
    return [call.slice(y, 2, at, n) for at, n in zip(starts, sizes, strict=True)]


def _paged(call: Call) -> Sequence[Item | None]:
    """PagedAttention(query, key, value, caches, ends, pasts, blocks, cos, sin) over [tokens, hidden]."""
    heads, kv_heads = heads_of(call, "num_heads"), heads_of(call, "kv_num_heads")
    tokens, batch = call.dims(0)[0], call.dims(6)[0] if call.has(6) else symbol("batch")
    length = divide_exactly(tokens, batch)
    if length is None:
        raise NotUnderstoodError(f"{tokens} tokens of {batch} sequences: name the dim of tokens, --dim NAME=tokens")
    x = call.item(0)
    parts = [call.item(k) for k in range(3)] if call.has(1) else parted(call, x, (heads, kv_heads, kv_heads), 1)
    q, k, v = (
        by_head(call, call.reshape(p, (batch, length, p.dims[1])), n)
        for p, n in zip(parts, (heads, kv_heads, kv_heads), strict=True)
    )
    if call.int_("do_rotary", 0):
        q, k = (rotated(call, y, call.item(8), call.item(9)) for y in (q, k))
    past = (_pages(call, 3, "keys", k), _pages(call, 4, "values", v))
    k, v = cached(call, past, k, v)
    attrs = AttentionAttrs(True, max(0, call.int_("local_window_size", -1)))
    out = attended(call, q, k, v, attrs)
    return (call.reshape(joined_heads(call, out), (tokens, numel_of(out))), None, None)


def numel_of(out: Item) -> Dim:
    """Return heads x d of an attention result."""
    found = out.dims[2], out.dims[3]
    assert isinstance(found[0], int)
    assert isinstance(found[1], int)
    return found[0] * found[1]


def _pages(call: Call, index: int, what: str, new: Item) -> Item | None:
    """A pool of blocks, of which each sequence has as many as it needs: kv entries."""
    item = call.item(index)
    if item.value is None or call.build.workload is not Workload.DECODE:
        return None
    call.build.as_cache(item.value, what)
    return filled(call, item, (new.dims[0], new.dims[1], symbol("kv"), new.dims[3]))


def _rotary(call: Call) -> Sequence[Item]:
    """RotaryEmbedding(x, cos, sin, positions); of com.microsoft(x, positions, cos, sin)."""
    x = call.item(0)
    cos, sin = (call.item(2), call.item(3)) if call.node.domain else (call.item(1), call.item(2))
    if x.type.rank == 4:
        return (rotated(call, x, cos, sin),)
    heads = call.int_("num_heads", 0) or _heads_by_table(x, cos)
    turned = rotated(call, call.permute(with_heads(call, x, heads), (0, 2, 1, 3)), cos, sin)
    return (joined_heads(call, call.permute(turned, (0, 2, 1, 3))),)


def _heads_by_table(x: Item, cos: Item) -> int:
    half = cos.dims[-1] if cos.dims else 0
    found = divide_exactly(x.dims[-1], half * 2) if isinstance(half, int) and half else None
    if not isinstance(found, int):
        raise NotUnderstoodError(f"{x.type} and tables {cos.type}: num_heads is needed")
    return found


RULES: Mapping[str, Rule] = {"Attention": _standard, "RotaryEmbedding": _rotary}
CONTRIB: Mapping[str, Rule] = {
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": _multi_head,
    "Attention": _with_projection,
    "DecoderMaskedMultiHeadAttention": _multi_head,
    "PagedAttention": _paged,
    "RotaryEmbedding": _rotary,
}
