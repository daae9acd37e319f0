"""Sharding of experts, norms, reductions and the loss."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.ops.fused.experts import ExpertsAttrs
from ....ir.ops.tensors.normalize import ALONG_DIM, DimAttrs, ReduceAttrs
from ..ask import PARTIAL, REPLICATE, Answer, Ask, Partial, Placement, Rule, Shard, replicate_all


def experts(ask: Ask) -> Answer:
    """Sharded tokens stay sharded; experts sharded over their inner size give partial sums."""
    inner = split_inside(ask, 3)
    count = len(ask.given)
    if inner is not None:
        up, down, bias = inner
        inputs = (REPLICATE, REPLICATE, REPLICATE, up, down, bias, PARTIAL)[:count]
        return Answer(inputs, (PARTIAL, REPLICATE, bias, Shard(1), PARTIAL))
    p = _tokens(ask, (0, 1, 2))
    return Answer((p, p, p, *(REPLICATE,) * (count - 3)), (p,) * 5)


def experts_bwd(ask: Ask) -> Answer:
    """Gradients of x and of the routing weights are partial over a sharded inner size, weights' over sharded tokens."""
    inner = split_inside(ask, 4)
    extra = ask.num_outputs - 4  # below none: a frozen bank has no gradients
    if inner is not None:
        up, down, bias = inner
        saved = (REPLICATE, bias, Shard(1), PARTIAL)
        whole = (REPLICATE,) * 4  # gradient, x, expert ids, routing weights
        return Answer((*whole, up, down, *saved), (PARTIAL, PARTIAL, up, down, bias, REPLICATE)[: ask.num_outputs])
    p = _tokens(ask, (0, 1, 2, 3))
    grad: Placement = PARTIAL if isinstance(p, Shard) else REPLICATE
    inputs = (p, p, p, p, REPLICATE, REPLICATE, p, p, p, p)
    return Answer(inputs, (p, p, *(grad,) * (2 + extra)))


def split_inside(ask: Ask, first_weight: int) -> tuple[Shard, Shard, Shard] | None:
    """Placements of up, down and the up bias (as of what goes up) when the inner size is sharded.

    Gate and up stand side by side, each sharded on its own; an up projection alone is sharded in blocks.
    """
    attrs = ask.call.attrs_as(ExpertsAttrs)
    up = Shard(2 if attrs.transposed else 1, packed=attrs.gated)
    down = Shard(1 if attrs.transposed else 2)
    given = ask.given[first_weight : first_weight + 2]
    sharded = any(isinstance(p, Shard) and p.dim == want.dim for p, want in zip(given, (up, down), strict=True))
    return (up, down, Shard(1, packed=attrs.gated)) if sharded else None


def _tokens(ask: Ask, positions: tuple[int, ...]) -> Placement:
    """How tokens lie: sharded as the first of these inputs that is."""
    found = (ask.whole(i) for i in positions)
    return next((p for p in found if isinstance(p, Shard) and p.dim == 0), REPLICATE)


def norm(ask: Ask) -> Answer:
    """Any dim but the last may be sharded."""
    p = _not_last(ask, 0)
    return Answer((p, *(REPLICATE,) * (len(ask.given) - 1)), (p,) * ask.num_outputs)


def norm_bwd(ask: Ask) -> Answer:
    """Everything lies as x does; the weight's gradient is then a partial sum."""
    p = _not_last(ask, 1)
    rows = tuple(p if ask.rank(i) == ask.rank(1) else REPLICATE for i in range(2, len(ask.given)))
    weight: Placement = PARTIAL if isinstance(p, Shard) else REPLICATE
    return Answer((p, p, *rows), (p, *(weight,) * (ask.num_outputs - 1)))


def _not_last(ask: Ask, index: int) -> Placement:
    p = ask.whole(index)
    return REPLICATE if isinstance(p, Shard) and p.dim == ask.rank(index) - 1 else p


def along_dim(ask: Ask) -> Answer:
    """Softmax, top-k, sort, running sums: any dim but the one they run along."""
    dim = ask.call.attrs_as(DimAttrs).dim
    found = [p for i in range(len(ask.given)) if isinstance(p := ask.whole(i), Shard) and p.dim != dim]
    if not found:
        return replicate_all(ask)
    return Answer((found[0],) * len(ask.given), (found[0],) * ask.num_outputs)


def reduce(ask: Ask) -> Answer:
    """A sum over the sharded dim is partial; other dims keep their place."""
    attrs, p = ask.call.attrs_as(ReduceAttrs), ask.given[0]
    linear = attrs.fn in ("sum", "mean")
    if isinstance(p, Partial):
        return Answer((p,), (p,)) if linear else Answer((ask.whole(0),), _reduced(ask, attrs, ask.whole(0)))
    if isinstance(p, Shard) and p.dim in attrs.dims:
        return Answer((p,), (PARTIAL,)) if linear else replicate_all(ask)
    return Answer((p,), _reduced(ask, attrs, p))


def _reduced(ask: Ask, attrs: ReduceAttrs, p: Placement) -> tuple[Placement, ...]:
    if not isinstance(p, Shard):
        return (p,) * ask.num_outputs
    shift = 0 if attrs.keepdim else sum(d < p.dim for d in attrs.dims)
    return (Shard(p.dim - shift, p.packed),) * ask.num_outputs


def cross_entropy(ask: Ask) -> Answer:
    """Rows may be sharded (the mean is then partial), or the vocabulary (the row statistics are then partial)."""
    p = ask.whole(0)
    if not isinstance(p, Shard):
        return replicate_all(ask)
    if p.dim == ask.rank(0) - 1:
        return Answer((Shard(p.dim), REPLICATE), (REPLICATE, PARTIAL))
    return Answer((p, p), (PARTIAL, p))


def cross_entropy_bwd(ask: Ask) -> Answer:
    """The gradient lies as the logits do; statistics of a sharded vocabulary must be whole."""
    p = ask.whole(1)
    if not isinstance(p, Shard):
        return replicate_all(ask)
    if p.dim == ask.rank(1) - 1:
        return Answer((REPLICATE, Shard(p.dim), REPLICATE, REPLICATE), (Shard(p.dim),))
    return Answer((REPLICATE, p, p, p), (p,))


RULES: Mapping[str, Rule] = {
    "experts": experts,
    "experts_bwd": experts_bwd,
    "norm": norm,
    "norm_bwd": norm_bwd,
    "reduce": reduce,
    "cross_entropy": cross_entropy,
    "cross_entropy_bwd": cross_entropy_bwd,
    **dict.fromkeys(ALONG_DIM, along_dim),
}
