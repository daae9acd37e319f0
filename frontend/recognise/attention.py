"""Attention in single steps, two products with a softmax between them, to one `attention`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.graph import Node
from ...ir.ops import Trait, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, as_dim, divide_exactly, product
from ...ir.types import DType, TensorType
from ..aten.tidy import through
from .rewrite import UNCHANGED, Draft, Look, fn_of
from .scores import Scores, joined_bias, scores_behind


def each_head_once(look: Look, ident: int, head: int) -> tuple[int, tuple[Dim, ...]]:
    """Return a value, and the dims to read it in, with the repeats of dim `head` taken away.

    Repeats are an expand of a new dim that a reshape then merges into the heads, or one gather with a single input
    (repeat_interleave, tile) that makes that dim longer. A value without repeats comes back as it is.
    """
    base = look.base(ident)
    dims = look.value(base).type.dims
    merged = look.made_by_op(base, Trait.RESHAPES)
    if merged is not None:
        wide = look.made_by_op(look.base(merged.inputs[0]), Trait.EXPANDS)
        found = None if wide is None else _under_expand(look, wide, dims, head)
        if found is not None:
            return found
    longer = look.made_by_op(base, Trait.LOOKS_UP)
    if longer is not None and len(longer.inputs) == 1 and _is_longer(look, longer, head):
        source = longer.inputs[0]
        return source, look.value(source).type.dims
    return base, dims


def _under_expand(look: Look, wide: Node, dims: tuple[Dim, ...], head: int) -> tuple[int, tuple[Dim, ...]] | None:
    """Return the narrow tensor when the expand repeats a dim beside the heads and nothing else."""
    narrow, full = look.value(wide.inputs[0]).type.dims, look.value(wide.key).type.dims
    narrow = (1,) * (len(full) - len(narrow)) + narrow
    repeated = [i for i, (a, b) in enumerate(zip(narrow, full, strict=True)) if a != b]
    if len(repeated) != 1 or repeated[0] not in (head, head + 1):
        return None
    before, behind = full[:head], full[head + 2 :]
    if (*before, product(full[head : head + 2]), *behind) != dims:
        return None
    groups = narrow[head] if repeated[0] == head + 1 else narrow[head + 1]
    return look.base(wide.inputs[0]), (*before, groups, *behind)


def _is_longer(look: Look, node: Node, head: int) -> bool:
    """Whether a node changes one dim alone, to a multiple."""
    short, long = look.value(node.inputs[0]).type.dims, look.value(node.key).type.dims
    if len(short) != len(long) or short[:head] != long[:head] or short[head + 1 :] != long[head + 1 :]:
        return False
    return divide_exactly(long[head], short[head]) is not None


Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AttentionOperand:
    """A tensor whose dims `batch`, `length` and `width` are groups of positions in `dims`, the dims to read it in."""

    value: int
    dims: tuple[Dim, ...]
    batch: tuple[int, ...]
    length: tuple[int, ...]
    width: tuple[int, ...]

    def sizes(self, positions: Sequence[int]) -> Dim:
        """Return the number of entries of some dims together."""
        return product_of(self.dims[i] for i in positions)


def product_of(dims: Iterator[Dim]) -> Dim:
    """Return a product as a dim."""
    return as_dim(product(tuple(dims)))


def operand(
    look: Look, ident: int, letters: str, batch: str, length: str, width: str, scaled: bool = True
) -> AttentionOperand | None:
    """Return the tensor behind casts, copies, views and, if `scaled`, scalings whose batch dims are [batch, heads].

    Of all tensors on the way back that fit the furthest counts. A batch of one dim is a single head.
    """
    wanted = tuple(tuple(letters.index(c) for c in group) for group in (batch, length, width))
    best: AttentionOperand | None = None
    for value, groups in _forms(look, ident, scaled):
        flat = [tuple(d for i in positions for d in groups[i]) for positions in wanted]
        found = AttentionOperand(value, look.value(value).type.dims, *flat)
        if len(found.width) == 1 and (best is None or len(found.batch) == 2 or len(best.batch) != 2):
            best = found
    return best


def _forms(look: Look, ident: int, scaled: bool) -> Iterator[tuple[int, Groups]]:
    """Yield a value and all it is a view or a multiple of, with the dims that each of its dims flattens."""
    groups: Groups = tuple((i,) for i in range(look.value(ident).type.rank))
    yield ident, groups
    while (node := look.producer.get(ident)) is not None:
        source = node.inputs[0] if node.inputs else -1
        if has(node, Trait.RESHAPES, Trait.PERMUTES):
            step = through(node, look.value(source).type.dims, look.value(ident).type.dims)
            if step is None:
                return
            groups = tuple(tuple(a for d in g for a in step[d]) for g in groups)
        elif not has(node, *UNCHANGED):
            given = look.operands(node)
            if not scaled or fn_of(node) not in ("mul", "div") or len(given) != 1:
                return
            (source,) = given
        ident = source
        yield ident, groups


def without_repeats(look: Look, given: AttentionOperand) -> AttentionOperand:
    """Return keys or values with each head once."""
    if len(given.batch) < 2:
        return given
    wide = look.made_by_op(look.base(given.value), Trait.EXPANDS)
    if len(given.batch) == 3 and wide is not None:
        narrow = look.value(wide.inputs[0]).type.dims
        repeated = given.batch[2]
        if len(narrow) == len(given.dims) and narrow[repeated] == 1:
            return AttentionOperand(wide.inputs[0], narrow, given.batch, given.length, given.width)
    if len(given.batch) != 2:
        return given
    value, dims = each_head_once(look, given.value, given.batch[1])
    return AttentionOperand(value, dims, given.batch, given.length, given.width)


def by_head(draft: Draft, given: AttentionOperand, shared: int) -> int:
    """Return a value [batch, heads, length, width]; `shared` dims of the length are heads that share keys."""
    look = draft.look
    ident = given.value
    if look.value(ident).type.dims != given.dims:
        ident = draft.view("reshape", ident, given.dims)
    order = (*given.batch, *given.length, *given.width)
    dims = tuple(given.dims[i] for i in order)
    if order != tuple(range(len(order))):
        ident = draft.view("permute", ident, dims, PermuteAttrs(order))
    heads = len(given.batch) + shared
    outer = (dims[0], product_of(iter(dims[1:heads])), *dims[heads:])
    return ident if outer == dims else draft.view("reshape", ident, outer)


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


def _queries_and_keys(look: Look, node: Node) -> tuple[AttentionOperand, AttentionOperand] | None:
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
        scores.mask.causal,
        scores.mask.window,
        bool(sinks),
        scores.dropout,
        bias=bool(bias),
        softcap=scores.softcap,
    )
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
