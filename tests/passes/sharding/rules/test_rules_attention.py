"""Attention, its indexer and the cache: which dims may be sharded, how extra inputs follow, which sums are partial."""

from __future__ import annotations

import pytest

from slipstick.ir.graph import NO_ATTRS, Attrs, Phase
from slipstick.ir.ops.base import OpCall
from slipstick.ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from slipstick.ir.ops.fused.index_keys import IndexAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.types import DType, TensorType
from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.tests.passes.sharding.rules.answers import answer_for

Dims = tuple[int, ...]
R = REPLICATE
Q: Dims = (2, 4, 16, 8)
K: Dims = (2, 2, 16, 8)
OUT: Dims = (2, 16, 4, 8)
LSE: Dims = (2, 4, 16)


def ask(
    given: tuple[Placement, ...], shapes: tuple[Dims, ...], outs: tuple[Dims, ...], attrs: Attrs = NO_ATTRS,
    axis: str = "tp", cp: str = "none",
) -> Ask:  # fmt: skip
    types = tuple(TensorType(d, DType.BF16) for d in shapes)
    call = OpCall("op", attrs, types, tuple(TensorType(d, DType.BF16) for d in outs))
    return Ask(axis, call, given, (False,) * len(given), (R,) * len(given), Phase.FORWARD, cp=cp)


@pytest.mark.parametrize(
    ("p", "out", "sinks"), [(Shard(1), Shard(2), Shard(0)), (Shard(0), Shard(0), R)], ids=["heads", "batch"]
)
def test_attention_is_split_by_heads_or_batch(p: Placement, out: Placement, sinks: Placement) -> None:
    plain = ask((p, R, R), (Q, K, K), (OUT, LSE), AttentionAttrs())
    assert answer_for("attention", plain) == Answer((p, p, p), (out, p))
    sunk = ask((p, p, p, R), (Q, K, K, (4,)), (OUT, LSE), AttentionAttrs(sinks=True))
    assert answer_for("attention", sunk) == Answer((p, p, p, sinks), (out, p))


def test_attention_over_a_sharded_length_needs_the_whole() -> None:
    assert answer_for("attention", ask((Shard(2), R, R), (Q, K, K), (OUT, LSE), AttentionAttrs())).inputs == (R, R, R)


def test_attention_backward_mirrors_forward() -> None:
    shapes = (OUT, Q, K, K, OUT, LSE)
    heads = ask((Shard(2), *(Shard(1),) * 3, Shard(2), Shard(1)), shapes, (Q, K, K), AttentionAttrs())
    assert answer_for("attention_bwd", heads) == Answer(heads.given, (Shard(1),) * 3)


@pytest.mark.parametrize(("p", "dsinks"), [(Shard(1), Shard(0)), (Shard(0), PARTIAL)], ids=["heads", "batch"])
def test_the_gradient_of_sinks_is_partial_over_batches_only(p: Shard, dsinks: Placement) -> None:
    shapes = (OUT, Q, K, K, OUT, LSE, (4,))
    given = ask((R, p, p, p, R, p, R), shapes, (Q, K, K, (4,)), AttentionAttrs(sinks=True))
    assert answer_for("attention_bwd", given).outputs == (p, p, p, dsinks)


@pytest.mark.parametrize("cache", [R, Shard(0), Shard(1), Shard(3)])
@pytest.mark.parametrize("tokens", [R, Shard(1), Shard(3), PARTIAL])
def test_what_is_appended_lies_as_the_cache_which_stays_where_it_is(cache: Placement, tokens: Placement) -> None:
    given = ask((cache, tokens), ((2, 2, 15, 8), (2, 2, 1, 8)), ((2, 2, 16, 8),), KvAppendAttrs(2))
    assert answer_for("kv_append", given) == Answer((cache, cache), (cache,))


def test_an_empty_cache_begins_as_its_tokens_lie_with_whole_heads() -> None:
    for tokens, lies in ((Shard(1), Shard(1)), (Shard(2), Shard(2)), (Shard(3), R)):
        given = ask((tokens,), ((2, 2, 15, 8),), ((2, 2, 15, 8),), KvAppendAttrs(2))
        assert answer_for("kv_append", given) == Answer((lies,), (lies,))


PER_HEAD: Dims = (1, 4, 16, 16)  # one bias a head, for all sequences
PADDING: Dims = (2, 1, 1, 16)  # one mask a sequence, for all heads and queries
IDS: Dims = (2, 16, 5)
EXTRAS = AttentionAttrs(bias=True, keys=5)


@pytest.mark.parametrize(
    ("bias", "along", "lies"),
    [(PER_HEAD, 1, Shard(1)), (PER_HEAD, 0, R), (PADDING, 1, R), (PADDING, 0, Shard(0))],
)
def test_a_bias_follows_heads_or_batch_where_it_has_them(bias: Dims, along: int, lies: Placement) -> None:
    p, ids = Shard(along), Shard(0) if along == 0 else R
    given = ask((p, p, p, R, R), (Q, K, K, bias, IDS), (OUT, LSE), EXTRAS)
    assert answer_for("attention", given).inputs == (p, p, p, lies, ids)
    backward = ask(
        (Shard(2 if along else 0), p, p, p, R, R, R, R), (OUT, Q, K, K, OUT, LSE, bias, IDS), (Q, K, K, bias), EXTRAS
    )
    assert answer_for("attention_bwd", backward).inputs[6:] == (lies, ids)
    # Where all parts have the same bias, each has a part of the sum that its gradient is.
    assert answer_for("attention_bwd", backward).outputs[3] == (PARTIAL if lies == R else lies)


@pytest.mark.parametrize(
    ("cp", "lies"), [("ring", (Shard(2), Shard(1))), ("ulysses", (Shard(1), R))], ids=["ring", "ulysses"]
)
def test_over_the_sequence_extra_inputs_follow_queries_or_heads(cp: str, lies: tuple[Placement, ...]) -> None:
    p = Shard(2)
    given = ask((p, p, p, R, R), (Q, K, K, PER_HEAD, IDS), (OUT, LSE), EXTRAS, "cp", cp)
    assert answer_for("attention", given).inputs[3:] == lies
    backward = ask(
        (Shard(1), p, p, p, R, R, R, R), (OUT, Q, K, K, OUT, LSE, PER_HEAD, IDS), (Q, K, K, PER_HEAD), EXTRAS, "cp", cp
    )
    assert answer_for("attention_bwd", backward).inputs[6:] == lies
    assert answer_for("attention_bwd", backward).outputs[3] == lies[0]


@pytest.mark.parametrize(
    ("given", "axis", "want"),
    [
        (Shard(0), "dp", Answer((Shard(0),) * 3, (Shard(0),))),
        (Shard(1), "tp", Answer((R, R, R), (R,))),
        (Shard(2), "cp", Answer((Shard(2), R, Shard(1)), (Shard(1),))),
    ],
    ids=["batch", "heads", "queries"],
)
def test_keys_are_chosen_by_the_scores_of_all_heads(given: Placement, axis: str, want: Answer) -> None:
    shapes: tuple[Dims, ...] = (Q, (2, 1, 16, 8), (2, 16, 4))
    assert answer_for("index_keys", ask((given, R, R), shapes, (IDS,), IndexAttrs(5), axis)) == want
