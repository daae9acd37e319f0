"""Sharding of views and data movement: the sharded dim is followed through reshape, permute, slice and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.graph import Phase
from ....ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ....ir.sizes.expr import Dim, Expr, product
from ..ask import DATA_AXES, PARTIAL, REPLICATE, Answer, Ask, Partial, Rule, Shard, replicate_all, samples_dim


def reshape(ask: Ask) -> Answer:
    """The sharded dim is followed; where a shard of it would be no set of whole entries, the tensor is gathered."""
    p = ask.given[0]
    if not isinstance(p, Shard):
        return Answer((p,), (p,))
    source, result = ask.call.inputs[0].dims, ask.call.outputs[0].dims
    if p.packed and ask.stacked and (heads := follow(source, result, Shard(p.dim))) is not None:
        return Answer((p,), (Shard(heads.dim, packed=True),))
    made, samples = follow(source, result, p), samples_dim(result, ask.axis) if ask.axis in DATA_AXES else None
    if samples is not None and samples_dim(source, ask.axis) == p.dim and (made is None or made.dim != samples):
        made = Shard(samples)  # a replica's samples, repeated side by side
    own = ask.own_tokens and isinstance(source[p.dim], Expr)  # tokens in turn; heads among them would be lost
    flattened = ask.axis == "tp" and made is not None and made.packed and not p.packed and not own
    # Over tp what flattens is a matrix that its layer wants whole anyway, but for a batch of them, one a head.
    heads_of_batch = made is not None and made.dim == 0 and len(result) > 2
    if made is None or (flattened and not heads_of_batch and not _stacks(source, result, p)):
        return replicate_all(ask)
    return Answer((p,), (made,))


def _stacks(source: Sequence[Dim], result: Sequence[Dim], p: Shard) -> bool:
    """Whether heads of [parts, heads, dim] are flattened: the packed columns of a projection of several tensors."""
    found = (([i for i in ins if source[i] != 1], outs) for ins, outs in groups(source, result) if p.dim in ins)
    real, made = next(found, ([], []))
    inside = all(isinstance(source[i], int) for i in real)
    return inside and len(made) == 1 and len(real) > 2 and real[1] == p.dim


def follow(source: Sequence[Dim], result: Sequence[Dim], p: Shard) -> Shard | None:
    """Return how a sharded dim lies after a reshape.

    The leading dim of a group stays sharded in the leading dim. An inner one that is flattened makes a packed dim: no
    one block, but whole entries all the same; unflattened, that is the inner dim again.

    >>> follow((2, 8, 4096), (2, 8, 32, 128), Shard(2)), follow((2, 8, 4096), (16, 4096), Shard(1))
    (Shard(dim=2, packed=False, routed=False), Shard(dim=0, packed=True, routed=False))
    """
    for ins, outs in groups(source, result):
        if p.dim not in ins:
            continue
        real, made = [i for i in ins if source[i] != 1], [o for o in outs if result[o] != 1]
        if not real or not made:
            return None
        if len(real) == len(made) == 1:
            return Shard(made[0], p.packed)
        if len(made) == 1 and real[0] != p.dim:
            return Shard(made[0], packed=True)
        if len(real) == 1 and p.packed:
            return Shard(made[1])
        return Shard(made[0]) if real[0] == p.dim and not p.packed else None
    return None


def groups(source: Sequence[Dim], result: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Pair the dims of a reshape into the smallest groups of equal size, left to right."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(result):
        ins, outs = [i] if i < len(source) else [], [j] if j < len(result) else []
        i, j = i + len(ins), j + len(outs)
        while (a := product(source[k] for k in ins)) != (b := product(result[k] for k in outs)):
            grow_source = j >= len(result) or (i < len(source) and _smaller(a, b))
            if grow_source and i < len(source):
                ins, i = [*ins, i], i + 1
            elif j < len(result):
                outs, j = [*outs, j], j + 1
            else:
                break
        found.append((ins, outs))
    return found


def _smaller(a: object, b: object) -> bool:
    """Whether the first product is still a part of the second: its symbols and its number are no larger."""
    from ....ir.sizes.expr import as_expr

    whole, part = as_expr(b), as_expr(a)  # type: ignore[arg-type]
    if len(part.terms) != 1:
        return False
    quotient = whole / part
    return all(isinstance(c, int) and all(e > 0 for _, e in m) for m, c in quotient.terms)


def permute(ask: Ask) -> Answer:
    """The sharded dim moves with its place."""
    p = ask.given[0]
    if not isinstance(p, Shard):
        return Answer((p,), (p,))
    return Answer((p,), (Shard(ask.call.attrs_as(PermuteAttrs).dims.index(p.dim), p.packed),))


def expand(ask: Ask) -> Answer:
    """New leading dims shift the sharded one; a tensor about to grow is gathered first, while it is small.

    So is a partial sum. The batch dim stays sharded: what grows along other dims is never wanted whole over the batch.
    """
    p = ask.given[0]
    if isinstance(p, Partial) and ask.axis == "tp" and _grows(ask):
        return replicate_all(ask)
    if not isinstance(p, Shard):
        return Answer((p,), (p,))
    if ask.axis == "tp" and p.dim > 0 and ask.phase is Phase.FORWARD and _grows(ask):
        return replicate_all(ask)
    return Answer((p,), (Shard(p.dim + ask.call.outputs[0].rank - ask.rank(0), p.packed),))


def _grows(ask: Ask) -> bool:
    shift = ask.call.outputs[0].rank - ask.rank(0)
    made = ask.call.outputs[0].dims[shift:]
    return any(a == 1 and b != 1 for a, b in zip(ask.call.inputs[0].dims, made, strict=True))


def slice_(ask: Ask) -> Answer:
    """Along a packed dim a slice is one of the tensors packed there; along another sharded dim it must be gathered."""
    p, attrs = ask.given[0], ask.call.attrs_as(SliceAttrs)
    if not isinstance(p, Shard):
        return Answer((p,), (p,))
    if p.dim == attrs.dim and p.packed and any(ask.on_all):
        return Answer((p,), (REPLICATE,))
    if p.dim == attrs.dim:
        return Answer((p,), (Shard(p.dim, ask.cut_again),)) if p.packed and not attrs.drop else replicate_all(ask)
    shift = 1 if attrs.drop and p.dim > attrs.dim else 0
    return Answer((p,), (Shard(p.dim - shift, p.packed),))


def pad(ask: Ask) -> Answer:
    """The adjoint of slice: along the padded dim the shards are those of the packed tensor."""
    p, attrs = ask.given[0], ask.call.attrs_as(SliceAttrs)
    held = any(ask.on_all) and all(isinstance(f, Shard) and f.dim == attrs.dim for f in ask.forward[:1])
    if held and not isinstance(p, Shard):
        return Answer((PARTIAL,), (Shard(attrs.dim, packed=True),))  # each rank's part of the gradient of its copy
    if not isinstance(p, Shard):
        return Answer((p,), (p,))
    if attrs.drop:
        return Answer((p,), (Shard(p.dim + (1 if p.dim >= attrs.dim else 0), p.packed),))
    return Answer((p,), (Shard(p.dim, p.packed or p.dim == attrs.dim),))


def concat(ask: Ask) -> Answer:
    """Pieces lie alike; sharded along the concat dim they make a packed one."""
    dim = ask.call.attrs_as(ConcatAttrs).dim
    if all(isinstance(p, Partial) for p in ask.given):
        return Answer(ask.given, (PARTIAL,))
    shards = [p for i in range(len(ask.given)) if isinstance(p := ask.whole(i), Shard)]
    if not shards:
        return replicate_all(ask)
    target = shards[0]
    if target.dim != dim:
        return Answer((target,) * len(ask.given), (target,))
    lain = tuple(p if isinstance(p, Shard) and p.dim == dim else target for p in map(ask.whole, range(len(ask.given))))
    kept = ask.on_all or (False,) * len(lain)
    return Answer(tuple(PARTIAL if k else p for p, k in zip(lain, kept, strict=True)), (Shard(dim, packed=True),))


def embedding(ask: Ask) -> Answer:
    """A table sharded over the vocabulary gives partial sums (rows of other ranks are zero)."""
    ids, table = ask.whole(0), ask.whole(1)
    if table == Shard(0):
        return Answer((REPLICATE, table), (PARTIAL,))
    if isinstance(table, Shard):
        return Answer((REPLICATE, table), (Shard(ask.call.outputs[0].rank - 1),))
    return Answer((ids, REPLICATE), (ids,))


def embedding_bwd(ask: Ask) -> Answer:
    """The gradient lies as the table does; over sharded ids it is a partial sum."""
    table = ask.forward[1] if len(ask.forward) > 1 else REPLICATE
    if table == Shard(0):
        return Answer((REPLICATE, REPLICATE), (table,))
    if isinstance(table, Shard):
        return Answer((Shard(ask.rank(0) - 1), REPLICATE), (table,))
    if isinstance(ask.given[0], Partial):
        return Answer((PARTIAL, REPLICATE), (PARTIAL,))
    dy, ids = ask.whole(0), ask.given[1]
    lead = next((p for p in (ids, dy) if isinstance(p, Shard) and p.dim < ask.rank(1)), REPLICATE)
    return Answer((lead, lead), (PARTIAL if isinstance(lead, Shard) else REPLICATE,))


RULES: Mapping[str, Rule] = {
    "reshape": reshape,
    "permute": permute,
    "expand": expand,
    "slice": slice_,
    "pad": pad,
    "concat": concat,
    "embedding": embedding,
    "embedding_bwd": embedding_bwd,
    "unpriced": replicate_all,
    "custom": replicate_all,
}
