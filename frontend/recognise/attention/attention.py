"""Attention in single steps, two products with a softmax between them, to one `attention`."""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.fused.attention import AttentionAttrs
from ....ir.ops.tensors.layout import PermuteAttrs
from ....ir.ops.tensors.matmul import MatmulAttrs
from ....ir.sizes.expr import Dim, divide_exactly
from ....ir.types import DType, TensorType
from ..look import Look
from ..rewrite import Draft
from .biases import joined_bias
from .operands import Operand, by_head, operand, without_repeats
from .scores import Scores, scores_behind


def attention(look: Look, node: Node) -> Draft | None:
    """Find attention at its second product, weights times values."""
    if not isinstance(node.attrs, MatmulAttrs) or len(node.inputs) != 2:
        return None
    left, right, out = node.attrs.letters
    for weights, values in ((0, 1), (1, 0)):
        scores = scores_behind(look, node.inputs[weights])
        if scores is not None and look.is_closed(scores.nodes, node):
            letters = (left, right) if weights == 0 else (right, left)
            return _attention(look, node, scores, node.inputs[values], letters, out)
    return None


def _attention(look: Look, node: Node, scores: Scores, values: int, letters: tuple[str, str], out: str) -> Draft | None:
    weights, given = letters
    batch, summed, width = _roles(weights, given, out)
    rows = "".join(c for c in weights if c not in given)
    if len(summed) != 1 or len(width) != 1 or weights[-1] != summed:
        return None
    v = operand(look, values, given, batch, summed, width, scaled=False)
    pair = _queries_and_keys(look, scores.product)
    if v is None or pair is None:
        return None
    q, k = pair
    k, v = without_repeats(look, k), without_repeats(look, v)
    draft = Draft(look, look.ending(node, look.value(q.value).type.dtype))
    shared = len(q.length) - 1
    ids = [_ranked(draft, by_head(draft, of, heads)) for of, heads in ((q, shared), (k, 0), (v, 0))]
    if not _fits(*(look.value(i).type for i in ids)):
        return None
    scored = (*look.value(ids[0]).type.dims[:3], look.value(ids[1]).type.dims[2])
    bias = joined_bias(draft, scores.biases, scored)
    if scores.biases and bias is None:
        return None
    _emit(draft, (*ids, *(() if bias is None else (bias,))), scores, (batch, rows, width, out), node)
    return draft


def _roles(left: str, right: str, out: str) -> tuple[str, str, str]:
    """Return the letters of batch and sum, and those of the right operand alone."""
    batch = "".join(c for c in left if c in right and c in out)
    summed = "".join(c for c in left if c in right and c not in out)
    return batch, summed, "".join(c for c in right if c not in left)


def _queries_and_keys(look: Look, node: Node) -> tuple[Operand, Operand] | None:
    """Return the operands of the first product: keys have the letter that the softmax runs along, the last one."""
    assert isinstance(node.attrs, MatmulAttrs)
    left, right, out = node.attrs.letters
    (a, b), (x, y) = ((left, right), node.inputs[:2])
    if out[-1] in left:
        (a, b), (x, y) = (right, left), node.inputs[1::-1]
    batch, summed, keys = _roles(a, b, out)
    rows = "".join(c for c in a if c not in b)
    if len(summed) != 1 or len(keys) != 1:
        return None
    q, k = operand(look, x, a, batch, rows, summed), operand(look, y, b, batch, keys, summed)
    return None if q is None or k is None else (q, k)


def _ranked(draft: Draft, ident: int) -> int:
    """A tensor without a dim for heads has one head."""
    kind = draft.look.value(ident).type
    if kind.rank != 3:
        return ident
    return draft.view("reshape", ident, (kind.dims[0], 1, *kind.dims[1:]))


def _fits(q: TensorType, k: TensorType, v: TensorType) -> bool:
    """Whether these are queries, keys and values of one attention, heads of keys shared evenly."""
    if not q.rank == k.rank == v.rank == 4 or q.dims[3] != k.dims[3] or k.dims[:3] != v.dims[:3]:
        return False
    fixed = isinstance(q.dims[3], int) and isinstance(v.dims[3], int)
    return fixed and q.dims[0] == k.dims[0] and divide_exactly(q.dims[1], k.dims[1]) is not None


def _emit(draft: Draft, ids: tuple[int, ...], scores: Scores, letters: tuple[str, str, str, str], node: Node) -> None:
    look = draft.look
    batch, rows, width, out = letters
    qkv, bias = ids[:3], ids[3:]
    q, v = look.value(qkv[0]).type, look.value(qkv[2]).type
    b, h, s, _ = q.dims
    kind = look.value(draft.root.key).type
    sinks = () if scores.sinks is None else (scores.sinks,)
    attrs = AttentionAttrs(
        scores.mask.causal, scores.mask.window, bool(sinks), scores.dropout, bias=bool(bias),
        softcap=scores.softcap,
    )  # fmt: skip
    kinds = [kind.with_dims((b, s, h, v.dims[3])), TensorType((b, h, s), DType.FP32)]
    made = draft.add("attention", (*qkv, *sinks, *bias), kinds, attrs)
    made = draft.view("permute", made, (b, h, s, v.dims[3]), PermuteAttrs((0, 2, 1, 3)))
    size: dict[str, Dim] = dict(zip(out, look.value(node.key).type.dims, strict=True))
    order = (*batch, *rows, *width)
    dims = tuple(size[c] for c in order)
    if dims != look.value(made).type.dims:
        made = draft.view("reshape", made, dims)
    if order != tuple(out):
        draft.view("permute", made, kind.dims, PermuteAttrs(tuple(order.index(c) for c in out)))


__all__ = ["attention"]
