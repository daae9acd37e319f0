"""Layout laws of products and attention: what is multiplied is cut alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.ops.tensors.matmul import MatmulAttrs
from ..lay import PARTIAL, REPLICATE, SAMPLES, Law, Lay, Partial, Placement, Shard, input_is, no_sums, result_is


def matmul(lay: Lay) -> Iterator[str]:
    """Operands are cut along one letter, packed or not alike; a letter that is summed over leaves a partial sum."""
    attrs = lay.call.attrs_as(MatmulAttrs)
    left, right, out = attrs.letters
    a, b = lay.ins[:2]
    if isinstance(a, Partial) or isinstance(b, Partial):
        yield from _one_sum(lay)
        return
    cut = [(letters[p.dim], p) for letters, p in ((left, a), (right, b)) if isinstance(p, Shard)]
    if not cut:
        yield from result_is(lay, 0, lay.outs[0], REPLICATE)
        return
    letter, first = cut[0]
    packed = {p.packed for _, p in cut} if lay.axis not in SAMPLES else {False}
    if len(packed) > 1 or {*(c for c, _ in cut)} != {letter}:
        yield f"operands are cut differently: {lay.input(0)} and {lay.input(1)}, spec {attrs.spec}"
        return
    if len(cut) == 1 and letter in left and letter in right:
        yield f"one operand is cut along '{letter}' and the other is whole: {lay.input(0)} and {lay.input(1)}"
        return
    want: Placement = Shard(out.index(letter), first.packed) if letter in out else PARTIAL
    yield from result_is(lay, 0, lay.outs[0], want)


def _one_sum(lay: Lay) -> Iterator[str]:
    """A product is linear in each operand: a partial sum times something whole is one."""
    if {*map(str, lay.ins[:2])} != {"P", "R"}:
        yield f"a partial sum is multiplied with what is not whole: {lay.input(0)} and {lay.input(1)}"
        return
    yield from result_is(lay, 0, lay.outs[0], PARTIAL)


def grouped_matmul(lay: Lay) -> Iterator[str]:
    """Rows [rows, in] and weights [groups, in, out]; or [in, rows] and [rows, out] for the gradient of weights."""
    a, b = lay.ins[:2]
    yield from no_sums(lay, 0, 2)
    weight_grad = lay.call.inputs[1].rank == 2
    left, right = _plain(a), _plain(b)
    summed = (Shard(1), Shard(0) if weight_grad else Shard(1))
    if (left == summed[0]) != (right == summed[1]):
        yield f"operands are cut differently: {lay.input(0)} and {lay.input(1)}"
    elif left == summed[0]:
        yield from result_is(lay, 0, lay.outs[0], PARTIAL)


def _plain(p: Placement) -> Placement:
    return Shard(p.dim) if isinstance(p, Shard) else p


def attention(lay: Lay) -> Iterator[str]:
    """Queries, keys and values share batch and heads; keys and values are whole for queries cut along the sequence.

    Of keys and values cut along theirs, each rank makes a summand of the result for whole queries.
    """
    yield from no_sums(lay, 0, 3)
    q, k, v = map(_plain, lay.ins[:3])
    if q == REPLICATE and k == v == Shard(2):
        yield from (fault for i in (0, 1) for fault in result_is(lay, i, _plain(lay.outs[i]), PARTIAL))
        return
    yield from _keys(lay, q, (k, v), 0)
    yield from result_is(lay, 0, _plain(lay.outs[0]), _result(q))


def attention_bwd(lay: Lay) -> Iterator[str]:
    """As forward; gradients of keys and values are partial where many ranks' queries read them."""
    yield from no_sums(lay, 0, 6)
    dout, q, k, v, out = map(_plain, lay.ins[:5])
    yield from _keys(lay, q, (k, v), 1)
    for i, p in ((0, dout), (4, out)):
        yield from input_is(lay, i, p, _result(q))
    yield from result_is(lay, 0, _plain(lay.outs[0]), q)
    grads = PARTIAL if isinstance(q, Shard) and k == REPLICATE else k
    for i in (1, 2):
        yield from result_is(lay, i, _plain(lay.outs[i]), grads)


def _keys(lay: Lay, q: Placement, keys: tuple[Placement, Placement], first: int) -> Iterator[str]:
    one_for_all = lay.call.inputs[first + 1].dims[1] == 1
    for i, p in enumerate(keys, first + 1):
        wanted = REPLICATE if q == Shard(2) or (q == Shard(1) and one_for_all) else q
        if p != wanted:
            yield f"queries and keys are cut differently: {lay.input(first)} and {lay.input(i)}; wanted {wanted}"


def _result(q: Placement) -> Placement:
    """Where the result [batch, queries, heads, d] of queries [batch, heads, queries, d] lies."""
    return Shard({0: 0, 1: 2, 2: 1}.get(q.dim, 3)) if isinstance(q, Shard) else q


LAWS: Mapping[str, Law] = {
    "matmul": matmul,
    "grouped_matmul": grouped_matmul,
    "attention": attention,
    "attention_bwd": attention_bwd,
}
