"""Sharding of attention, of the indexer that chooses its keys, and of the KV cache."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from ..ask import PARTIAL, REPLICATE, Answer, Ask, Placement, Rule, Shard, replicate_all

_FORWARD, _BACKWARD = 3, 6  # inputs that every call has


def _heads_or_batch(placements: tuple[Placement, ...]) -> Shard | None:
    found = [p for p in placements if isinstance(p, Shard) and p.dim in (0, 1)]
    return Shard(found[0].dim) if found else None


def _over_sequence(ask: Ask, query: Placement) -> bool:
    return ask.axis in ("up", "cp") and query == Shard(2)


def _extras(ask: Ask, first: int, along: int) -> tuple[Placement, ...]:
    """How sinks, bias and ids lie where scores [batch, heads, queries, keys] are cut along a dim."""
    names = ask.call.attrs_as(AttentionAttrs).extras
    dims = {"sinks": {1: 0}, "ids": {0: 0, 2: 1}}
    lies: list[Placement] = []
    for name, kind in zip(names, ask.call.inputs[first:], strict=True):
        if name == "bias":
            lies.append(REPLICATE if kind.dims[along] == 1 else Shard(along))
        else:
            lies.append(Shard(dims[name][along]) if along in dims[name] else REPLICATE)
    return tuple(lies)


def _extra_grads(ask: Ask, extras: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """Gradients of sinks and bias lie as these do; of one that is the same for all parts they are partial sums."""
    return tuple(p if isinstance(p, Shard) else PARTIAL for p in extras[: ask.num_outputs - 3])


def attention(ask: Ask) -> Answer:
    """Heads or batch may be sharded; under context parallelism the sequence of the queries; sinks are one a head.

    One head of keys and values for all queries is whole on every rank.
    """
    if _over_sequence(ask, ask.given[0]):
        return _attention_over_sequence(ask)
    # Heads are independent of one another, and so are sequences of a batch: cut along either, no rank needs another.
    p = _heads_or_batch(ask.given[:3])
    if p is None:
        return replicate_all(ask)
    # A single head of keys cannot be cut: every rank keeps it whole for its heads of queries (multi-query attention).
    keys = REPLICATE if p.dim == 1 and _one_for_all(ask, 0) else p
    return Answer((p, keys, keys, *_extras(ask, _FORWARD, p.dim)), (Shard(2 if p.dim == 1 else 0), p))


def _one_for_all(ask: Ask, query: int) -> bool:
    """Whether many heads of queries read one head of keys and values."""
    q, k = ask.call.inputs[query : query + 2]
    return k.dims[1] == 1 and q.dims[1] != 1


def _attention_over_sequence(ask: Ask) -> Answer:
    """Whole keys and values for each rank's queries, or (Ulysses) the whole sequence for each rank's heads."""
    # Ulysses (DeepSpeed, arXiv 2309.14509): an all-to-all trades the cut of the sequence for one of heads and back,
    # so that the kernel sees whole sequences. Otherwise queries stay where they are, and keys and values come to
    # them.
    if ask.cp == "ulysses":
        heads = Shard(1)
        keys = REPLICATE if _one_for_all(ask, 0) else heads
        return Answer((heads, keys, keys, *_extras(ask, _FORWARD, 1)), (Shard(2), heads))
    return Answer((Shard(2), REPLICATE, REPLICATE, *_extras(ask, _FORWARD, 2)), (Shard(1), Shard(2)))


def _attention_bwd_over_sequence(ask: Ask) -> Answer:
    """As forward; gradients of keys and values are partial sums over the ranks' queries."""
    if ask.cp == "ulysses":
        heads, extras = Shard(1), _extras(ask, _BACKWARD, 1)
        one = _one_for_all(ask, 1)
        keys, grads = (REPLICATE, PARTIAL) if one else (heads, heads)
        inputs = (Shard(2), heads, keys, keys, Shard(2), heads, *extras)
        return Answer(inputs, (heads, grads, grads, *_extra_grads(ask, extras)))
    extras = _extras(ask, _BACKWARD, 2)
    rows: tuple[Placement, ...] = (Shard(1), Shard(2), REPLICATE, REPLICATE, Shard(1), Shard(2), *extras)
    return Answer(rows, (Shard(2), PARTIAL, PARTIAL, *_extra_grads(ask, extras)))


def attention_bwd(ask: Ask) -> Answer:
    """As forward; gradients of sinks and of a broadcast bias are partial sums over what they are the same for."""
    if _over_sequence(ask, ask.given[1]) or (
        ask.axis in ("up", "cp") and ask.forward and ask.forward[0] in (Shard(1), Shard(2))
    ):
        return _attention_bwd_over_sequence(ask)
    p = _heads_or_batch(ask.given[1:4])
    if p is None:
        return replicate_all(ask)
    out, extras = Shard(2 if p.dim == 1 else 0), _extras(ask, _BACKWARD, p.dim)
    grads = _extra_grads(ask, extras)
    if p.dim == 1 and _one_for_all(ask, 1):
        return Answer((out, p, REPLICATE, REPLICATE, out, p, *extras), (p, PARTIAL, PARTIAL, *grads))
    return Answer((out, p, p, p, out, p, *extras), (p, p, p, *grads))


def index_keys(ask: Ask) -> Answer:
    """Batch may be sharded, and queries over the axes of the sequence; heads are summed before keys are chosen.

    Over `tp` each rank scores all heads: vLLM keeps its indexer whole (`vllm/model_executor/models/deepseek_v2.py`).
    """
    if _over_sequence(ask, ask.given[0]):
        return Answer((Shard(2), REPLICATE, Shard(1)), (Shard(1),))
    if ask.given[0] == Shard(0):
        return Answer((Shard(0),) * 3, (Shard(0),))
    return replicate_all(ask)


def kv_append(ask: Ask) -> Answer:
    """New tokens lie as the cache does, which stays where it is; an empty one begins as they lie, with whole heads.

    Behind a part of the length there is no place for the next token: `spread_cache` distributes that.
    """
    p, starts = ask.whole(0), len(ask.given) == 1
    last = ask.rank(0) - 1 if starts else ask.call.attrs_as(KvAppendAttrs).dim
    if isinstance(p, Shard) and p.dim == last:
        return replicate_all(ask)
    return Answer((p,) * len(ask.given), (p,))


RULES: Mapping[str, Rule] = {
    "attention": attention,
    "attention_bwd": attention_bwd,
    "index_keys": index_keys,
    "kv_append": kv_append,
}
