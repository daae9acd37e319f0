"""Sharding of expert banks: tokens by data, rows by expert, inner size by tensor parallelism.

Rows that lie sharded over `tp` with their tokens travel so: each rank sends its own. Where the inner size is split,
they are gathered over `tp` behind that, and the partial sums reduced and scattered before they travel back, as
Megatron-Core's all-to-all dispatcher does; that sends less than gathering first.

Serving engines often let the ranks of an axis have all tokens (`Ask.all_tokens`): tensor-parallel ranks have them
anyway, those with data-parallel attention gather them. Each computes its own experts' rows, or its part of every
expert, and the parts are summed.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ask import PARTIAL, REPLICATE, Answer, Ask, Partial, Placement, Rule, Shard
from .semantic import split_inside

ROUTED = Shard(0, routed=True)


def dispatch(ask: Ask) -> Answer:
    """Rows lie with their tokens; where every rank has all tokens, with their experts."""
    if ask.all_tokens:
        return Answer((REPLICATE, REPLICATE), (ROUTED if ask.own_rows else REPLICATE,))
    p = _tokens(ask, (0, 1))
    return Answer((p, p), (p,))


def dispatch_bwd(ask: Ask) -> Answer:
    """Linear: over whole tokens partial sums stay partial; routed rows come back to their tokens.

    The rows of each rank's own experts make a part of the sum.
    """
    if ask.all_tokens:
        return Answer((ROUTED if ask.own_rows else PARTIAL, REPLICATE), (PARTIAL,))
    p = _tokens(ask, (1, 0))
    if isinstance(ask.given[0], Partial) and p == REPLICATE:
        return Answer((PARTIAL, REPLICATE), (PARTIAL,))
    return Answer((p, p), (p,))


def expert_bank(ask: Ask) -> Answer:
    """Experts on other ranks draw the rows there; a split inner size gives partial sums; else rows stay as they are."""
    inner = split_inside(ask, 1)
    num = len(ask.given)
    if inner is not None:
        up, down, bias = inner
        return Answer((REPLICATE, up, down, bias, PARTIAL)[:num], (PARTIAL, bias, Shard(1)))
    if _by_expert(ask, 1):
        return Answer((ROUTED, *(Shard(0),) * (num - 1)), (ROUTED,) * 3)
    p = _tokens(ask, (0,))
    return Answer((p, *(REPLICATE,) * (num - 1)), (p,) * 3)


def expert_bank_bwd(ask: Ask) -> Answer:
    """As forward; weight gradients lie as the weights, or are partial over sharded rows."""
    inner = split_inside(ask, 2)
    extra = ask.num_outputs - 3
    if inner is not None:
        up, down, bias = inner
        inputs = (REPLICATE, REPLICATE, up, down, bias, Shard(1))
        return Answer(inputs, (PARTIAL, up, down, bias, REPLICATE)[: ask.num_outputs])
    if _by_expert(ask, 2):
        return Answer((ROUTED, ROUTED, Shard(0), Shard(0), ROUTED, ROUTED), (ROUTED, *(Shard(0),) * (2 + extra)))
    p = _tokens(ask, (1, 0))
    grad: Placement = PARTIAL if isinstance(p, Shard) else REPLICATE
    return Answer((p, p, REPLICATE, REPLICATE, p, p), (p, *(grad,) * (2 + extra)))


def combine(ask: Ask) -> Answer:
    """Linear in the rows: over whole tokens partial sums stay partial; routed rows come back to their tokens.

    Each rank's own rows make a part of the sum.
    """
    if ask.all_tokens:
        rows: Placement = ROUTED if ask.own_rows else PARTIAL
        return Answer((rows, REPLICATE, REPLICATE), (PARTIAL,))
    p = _tokens(ask, (1, 2, 0))
    if isinstance(ask.given[0], Partial) and p == REPLICATE:
        return Answer((PARTIAL, REPLICATE, REPLICATE), (PARTIAL,))
    return Answer((p, p, p), (p,))


def combine_bwd(ask: Ask) -> Answer:
    """The gradient of the weights is partial where the rows are, or where each rank has the rows of its own experts."""
    if ask.all_tokens and ask.own_rows:
        return Answer((REPLICATE, ROUTED, REPLICATE, REPLICATE), (ROUTED, PARTIAL))
    if ask.all_tokens:
        return Answer((REPLICATE, PARTIAL, REPLICATE, REPLICATE), (REPLICATE, PARTIAL))
    p = _tokens(ask, (2, 3, 0))
    if isinstance(ask.given[1], Partial) and p == REPLICATE:
        return Answer((REPLICATE, PARTIAL, REPLICATE, REPLICATE), (REPLICATE, PARTIAL))
    return Answer((p, p, p, p), (p, p))


def _tokens(ask: Ask, positions: tuple[int, ...]) -> Placement:
    """How tokens lie: sharded as the first of these inputs that is, not routed."""
    for i in positions:
        p = ask.whole(i)
        if isinstance(p, Shard) and p.dim == 0:
            return Shard(0, p.packed)
    return REPLICATE


def _by_expert(ask: Ask, first_weight: int) -> bool:
    return ask.axis in ("ep", "tp") and ask.given[first_weight] == Shard(0)


RULES: Mapping[str, Rule] = {
    "dispatch": dispatch,
    "dispatch_bwd": dispatch_bwd,
    "expert_bank": expert_bank,
    "expert_bank_bwd": expert_bank_bwd,
    "combine": combine,
    "combine_bwd": combine_bwd,
}
