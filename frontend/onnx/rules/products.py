"""Matrix products: MatMul with broadcasting, Gemm, Einsum; tensors in low precision, of which products read most."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from string import ascii_letters
from typing import TypeAlias

from ....ir.errors import NotUnderstoodError
from ....ir.ops.quantise import QuantiseAttrs
from ....ir.ops.tensors.layout import PermuteAttrs
from ....ir.ops.tensors.lookup import Labels, lookup_of
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.sizes.expr import Dim
from ....ir.types import DType, TensorType
from ..call import Call, Rule
from ..shapes.items import Item, Packed, dtype_of
from .images import convolved
from .pointwise import joined_dims
from .rows import reduced

_Product: TypeAlias = Callable[[Call, Item, Item, DType, Item | None], Item]
_EINSUM = re.compile(r"[A-Za-z.]*(,[A-Za-z.]*)*(->[A-Za-z.]*)?")


def product(call: Call, a: Item, b: Item, dtype: DType | None = None, bias: Item | None = None) -> Item:
    """Write a @ b as numpy broadcasts it; a weight in low precision is multiplied as it rests."""
    if not a.dims or not b.dims:
        raise NotUnderstoodError(f"a product of {a.type} and {b.type}")
    if a.dims[-1] != b.dims[-2 if b.type.rank > 1 else -1]:
        raise NotUnderstoodError(f"a product of {a.type} and {b.type}: inner dims differ")
    dtype = dtype or a.type.dtype
    if b.packed is not None and b.type.rank == 2:
        return _with_packed(call, a, b.packed, dtype, bias)
    out_batch = joined_batch(a, b)
    a, left = _lettered(call, a, out_batch, "m" if a.type.rank > 1 else "", "k", last=True)
    b, right = _lettered(call, b, out_batch, "n" if b.type.rank > 1 else "", "k", last=False)
    batch_letters = _letters(len(out_batch))
    out = batch_letters + ("m" if "m" in left else "") + ("n" if "n" in right else "")
    sizes: dict[str, Dim] = {**dict(zip(right, b.dims, strict=True)), **dict(zip(left, a.dims, strict=True))}
    dims = tuple(sizes.get(c, 1) for c in out)
    made = "".join(c for c in out if c in sizes)
    b, right = _unpermuted(call, b, right, len(left))
    kind = TensorType(tuple(sizes[c] for c in made), dtype)
    extra = [bias] if bias is not None else []
    result = call.emit("matmul", [a, b, *extra], [kind], MatmulAttrs(f"{left},{right}->{made}"))[0]
    return call.reshape(result, dims)


def _with_packed(call: Call, a: Item, packed: Packed, dtype: DType, bias: Item | None) -> Item:
    """A product with a matrix as it rests: the kernel reads its numbers and scales and widens them itself."""
    # The weight as its bytes lie, and its scales with as many dims.
    ids = call.build.resting(packed, call.origin)
    weight, *scales = [Item(call.build.flat.values[i].type, i) for i in ids]
    left = _letters(a.type.rank - 1) + "k"
    right, n = ("nk", weight.dims[0]) if packed.turned else ("kn", weight.dims[1])
    kind = TensorType((*a.dims[:-1], n), dtype)
    attrs = MatmulAttrs(f"{left},{right}->{left[:-1]}n", len(scales))
    return call.emit("matmul", [a, weight, *([bias] if bias is not None else []), *scales], [kind], attrs)[0]


def joined_batch(a: Item, b: Item) -> tuple[Dim, ...]:
    """Return the dims in front of the matrices."""
    return joined_dims([Item(a.type.with_dims(a.dims[:-2])), Item(b.type.with_dims(b.dims[:-2]))])


def _letters(number: int) -> str:
    return "".join(c for c in ascii_letters if c not in "kmn")[:number]


def _lettered(call: Call, item: Item, batch: Sequence[Dim], own: str, inner: str, last: bool) -> tuple[Item, str]:
    """Name the dims; a batch dim of one that meets a longer one is dropped, for it is no dim of the product."""
    own_rank = len(own) + 1
    names = _letters(len(batch))[len(batch) - (item.type.rank - own_rank) :] if item.type.rank > own_rank else ""
    wanted = batch[len(batch) - len(names) :] if names else ()
    kept = [k for k, c in enumerate(names) if item.dims[k] == wanted[k]]
    if len(kept) < len(names):
        item = call.reshape(item, (*(item.dims[k] for k in kept), *item.dims[len(names) :]))
    return item, "".join(names[k] for k in kept) + (own + inner if last else inner + own)


def _unpermuted(call: Call, item: Item, letters: str, left_rank: int) -> tuple[Item, str]:
    """A transposed weight is read as it lies: its letters change places. Matrices are left to be told apart later."""
    node = None if item.value is None else call.build.producer.get(item.value)
    if node is None or not isinstance(node.attrs, PermuteAttrs) or item.type.rank != 2 or left_rank < 3:
        return item, letters
    source = call.build.flat.values[node.inputs[0]]
    order = node.attrs.dims
    return Item(source.type, source.id), "".join(letters[order.index(d)] for d in range(len(order)))


def _matmul(call: Call) -> Sequence[Item]:
    return (product(call, call.item(0), call.item(1)),)


def linear(call: Call, a: Item, b: Item, c: Item | None, turn_a: bool, turn_b: bool) -> Item:
    """Write a Gemm; a bias of one entry a column is added in the epilogue, another one afterwards."""
    if a.type.rank != 2 or b.type.rank != 2:
        raise NotUnderstoodError(f"Gemm of {a.type} and {b.type}, which must have two dims")
    a = call.permute(a, (1, 0)) if turn_a else a
    b = turned(call, b) if turn_b else b
    c = call.reshape(c, c.dims[1:]) if c is not None and c.type.rank == 2 and c.dims[0] == 1 else c
    fused = c is not None and c.dims == (b.dims[1],) and not c.is_scalar
    y = product(call, a, b, bias=c if fused else None)
    if c is None or fused:
        return y
    return call.pointwise("add", [y, c], joined_dims([y, c]), y.type.dtype)


def turned(call: Call, b: Item) -> Item:
    """See a matrix the other way round; a packed one stays packed."""
    if b.packed is None:
        return call.permute(b, (1, 0))
    return Item(b.type.with_dims(b.dims[::-1]), packed=replace(b.packed, turned=not b.packed.turned))


def _gemm(call: Call) -> Sequence[Item]:
    a, b = call.item(0), call.item(1)
    return (linear(call, a, b, call.optional(2), bool(call.int_("transA", 0)), bool(call.int_("transB", 0))),)


def _einsum(call: Call) -> Sequence[Item]:
    text = call.text("equation", "").replace(" ", "")
    items = [i for i in call.inputs if i is not None]
    terms, out = _terms(text, [i.type.rank for i in items])
    pairs = [_diagonal(call, i, t) for i, t in zip(items, terms, strict=False)]
    if len(terms) == len(items):
        items, terms = [i for i, _ in pairs], [t for _, t in pairs]
    _check_einsum(terms, out, items)
    left, letters = items[0], terms[0]
    for k, (right, more) in enumerate(zip(items[1:], terms[1:], strict=True), 1):
        later = "".join(terms[k + 1 :]) + out
        left, letters = _pair(call, (left, letters), (right, more), later)
    return (_arranged(call, left, letters, out),)


def _terms(text: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each term and of the result.

    `...` becomes letters; a result that is left out has all letters that stand once, in their order.
    """
    if text.count("->") > 1 or len(text) > 200 or not _EINSUM.fullmatch(text):
        raise NotUnderstoodError(f"Einsum '{text}': only letters, '...', ',' and '->' are understood")
    given, arrow, out = text.partition("->")
    terms = given.split(",")
    if not arrow:
        letters = given.replace("...", "").replace(",", "")
        out = ("..." if "..." in given else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    hidden = [rank - len(t) + 3 for t, rank in zip(terms, ranks, strict=False) if "..." in t]
    if any(n < 0 for n in hidden):
        raise NotUnderstoodError(f"Einsum '{text}' for tensors of {list(ranks)} dims")
    free = [c for c in ascii_letters if c not in text][: max(hidden, default=0)]
    most = len(free)
    filled = [
        t.replace("...", "".join(free[most - (rank - len(t) + 3) :])) if "..." in t else t
        for t, rank in zip(terms, ranks, strict=False)
    ]
    return filled + terms[len(filled) :], out.replace("...", "".join(free))


def _diagonal(call: Call, item: Item, term: str) -> tuple[Item, str]:
    """Take the entries of a term whose letters that stand twice are the same."""
    once = "".join(dict.fromkeys(term))
    if once == term or len(term) != item.type.rank:
        return item, term
    kept: Labels = tuple(c if term.count(c) == 1 else None for c in term)
    made: Labels = tuple(c if term.count(c) == 1 else None for c in once)
    sizes = dict(zip(term, item.dims, strict=True))
    if any(sizes[c] != d for c, d in zip(term, item.dims, strict=True)):
        raise NotUnderstoodError(f"Einsum term '{term}' for {item.type}")
    kind = item.type.with_dims(tuple(sizes[c] for c in once))
    return call.emit("gather", [item], [kind], lookup_of([kept, made]))[0], once


def _check_einsum(terms: Sequence[str], out: str, items: Sequence[Item]) -> None:
    sizes: dict[str, Dim] = {}
    if len(terms) != len(items) or len(set(out)) != len(out):
        raise NotUnderstoodError(f"Einsum of {len(items)} tensors by {','.join(terms)}->{out}")
    for term, item in zip(terms, items, strict=True):
        if len(term) != item.type.rank or len(set(term)) != len(term):
            raise NotUnderstoodError(f"Einsum term '{term}' for {item.type}")
        for letter, d in zip(term, item.dims, strict=True):
            if sizes.setdefault(letter, d) != d:
                raise NotUnderstoodError(f"Einsum letter '{letter}' is {sizes[letter]} and {d}")
    if not set(out) <= sizes.keys():
        raise NotUnderstoodError(f"Einsum result '{out}' has letters that no tensor has")


def _pair(call: Call, a: tuple[Item, str], b: tuple[Item, str], later: str) -> tuple[Item, str]:
    """Multiply two terms; what only one of them has and nobody wants is summed first."""
    (left, la), (right, lb) = a, b
    left, la = _summed(call, left, la, lb + later)
    right, lb = _summed(call, right, lb, la + later)
    inner = [c for c in la if c in lb and c not in later]
    made = "".join(c for c in dict.fromkeys(la + lb) if c not in inner)
    sizes = {**dict(zip(lb, right.dims, strict=True)), **dict(zip(la, left.dims, strict=True))}
    dims = tuple(sizes[c] for c in made)
    if inner:
        kind = TensorType(dims, left.type.dtype)
        return call.emit("matmul", [left, right], [kind], MatmulAttrs(f"{la},{lb}->{made}"))[0], made
    spread = [_spread(call, item, letters, made) for item, letters in ((left, la), (right, lb))]
    return call.pointwise("mul", spread, dims, left.type.dtype), made


def _summed(call: Call, item: Item, letters: str, wanted: str) -> tuple[Item, str]:
    gone = tuple(k for k, c in enumerate(letters) if c not in wanted)
    if not gone:
        return item, letters
    return reduced(call, item, "sum", gone, False), "".join(c for c in letters if c in wanted)


def _spread(call: Call, item: Item, letters: str, made: str) -> Item:
    order = sorted(range(len(letters)), key=lambda k: made.index(letters[k]))
    item = call.permute(item, order)
    sizes = dict(zip((letters[k] for k in order), item.dims, strict=True))
    return call.reshape(item, tuple(sizes.get(c, 1) for c in made))


def _arranged(call: Call, item: Item, letters: str, out: str) -> Item:
    item, letters = _summed(call, item, letters, out)
    return call.permute(item, [letters.index(c) for c in out])


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


def _of_whole(write: _Product, weight: int, dtype: int | DType, bias: int | None = None) -> Rule:
    """A product of whole numbers: which inputs are its weight, its bias, and (where it is no type) of its type."""

    def rule(call: Call) -> Sequence[Item]:
        made = call.dtype(dtype) if isinstance(dtype, int) else dtype
        return (write(call, call.item(0), _stored(call, weight), made, None if bias is None else call.optional(bias)),)

    return rule


def _dynamic_matmul(call: Call) -> Sequence[Item]:
    """DynamicQuantizeMatMul(a, b, b scale, b zero, bias): the rows are cast, the product is of integers."""
    a = call.item(0)
    (low,) = call.emit("quantise", [a], [TensorType(a.dims, DType.UINT8)], QuantiseAttrs(2))
    return (product(call, low, _stored(call, 1), a.type.dtype, call.optional(4)),)


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


CONTRIB: Mapping[str, Rule] = {
    "DequantizeLinear": _dequantise,
    "QuantizeLinear": _quantise,
    "MatMulIntegerToFloat": _of_whole(product, 1, 2, 6),
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "QLinearConv": _of_whole(convolved, 3, 7, 8),
    "QGemm": _linear_gemm,
    "QLinearGlobalAveragePool": _linear_mean,
    "QLinearConcat": _linear_concat,
    "QLinearSoftmax": _linear_softmax,
    **dict.fromkeys(_LINEAR, _linear_pointwise),
}


RULES: Mapping[str, Rule] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "DequantizeLinear": _dequantise,
    "QuantizeLinear": _quantise,
    "DynamicQuantizeLinear": _dynamic,
    "QLinearMatMul": _of_whole(product, 3, 7),
    "MatMulInteger": _of_whole(product, 1, DType.INT32),
    "QLinearConv": _of_whole(convolved, 3, 7, 8),
    "ConvInteger": _of_whole(convolved, 1, DType.INT32),
}
