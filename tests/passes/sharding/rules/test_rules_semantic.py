"""Experts, norms, reductions and the loss: which dims may be sharded, and which sums are then partial."""

from __future__ import annotations

import pytest

from slipstick.ir.graph import NO_ATTRS, Attrs, Phase
from slipstick.ir.ops.base import OpCall
from slipstick.ir.ops.fused.experts import ExpertsAttrs
from slipstick.ir.ops.tensors.normalize import DimAttrs, NormAttrs, ReduceAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from slipstick.ir.types import DType, TensorType
from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.tests.passes.sharding.rules.answers import answer_for

Dims = tuple[int, ...]
R = REPLICATE
PACKED = Shard(1, packed=True)
X: Dims = (2, 16, 64)
ROW: Dims = (2, 16, 1)


def ask(given: tuple[Placement, ...], shapes: tuple[Dims, ...], outs: tuple[Dims, ...], attrs: Attrs = NO_ATTRS) -> Ask:
    types = tuple(TensorType(d, DType.BF16) for d in shapes)
    call = OpCall("op", attrs, types, tuple(TensorType(d, DType.BF16) for d in outs))
    return Ask("tp", call, given, (False,) * len(given), (R,) * len(given), Phase.FORWARD)


# 16 tokens of 64, top 2 of 8 experts of inner size 32: up [8, 64, 64] holds gate and up side by side.
BANK: tuple[Dims, ...] = ((16, 64), (16, 2), (16, 2), (8, 64, 64), (8, 64, 32))
MADE: tuple[Dims, ...] = ((16, 64), (32, 64), (32, 64), (32, 32), (32, 64))


def test_experts_split_by_their_inner_size_give_partial_sums() -> None:
    up, down = PACKED, Shard(2)
    given = ask((R, R, R, up, down), BANK, MADE, ExpertsAttrs())
    assert answer_for("experts", given) == Answer((R, R, R, up, down), (PARTIAL, R, PACKED, Shard(1), PARTIAL))


def test_biases_of_split_experts_up_in_shards_and_down_on_one_rank() -> None:
    up, down = PACKED, Shard(2)
    shapes = (*BANK, (8, 64), (8, 64))
    given = ask((R, R, R, up, down, PACKED, R), shapes, MADE, ExpertsAttrs(bias=True))
    assert answer_for("experts", given).inputs[5:] == (PACKED, PARTIAL)


def test_transposed_weights_of_experts_have_their_inner_size_elsewhere() -> None:
    up, down = Shard(2, packed=True), Shard(1)
    shapes = (*BANK[:3], (8, 64, 64), (8, 32, 64))
    given = ask((R, R, R, up, down), shapes, MADE, ExpertsAttrs(transposed=True))
    assert answer_for("experts", given).inputs == (R, R, R, up, down)


def test_experts_over_sharded_tokens_need_whole_weights() -> None:
    p = Shard(0)
    given = ask((p, R, R, R, R), BANK, MADE, ExpertsAttrs())
    assert answer_for("experts", given) == Answer((p, p, p, R, R), (p,) * 5)


def test_experts_backward() -> None:
    shapes = ((16, 64), *BANK, *MADE[1:])
    outs = ((16, 64), (16, 2), *BANK[3:])
    up, down = PACKED, Shard(2)
    inner = ask((R, R, R, R, up, down, R, PACKED, Shard(1), PARTIAL), shapes, outs, ExpertsAttrs())
    # Gradients of tokens and routing weights are sums over the inner size; the weights' own lie as the weights.
    assert answer_for("experts_bwd", inner) == Answer(inner.given, (PARTIAL, PARTIAL, up, down))
    p = Shard(0)
    tokens = ask((p, p, p, p, R, R, p, p, p, p), shapes, outs, ExpertsAttrs())
    assert answer_for("experts_bwd", tokens) == Answer(tokens.given, (p, p, PARTIAL, PARTIAL))


@pytest.mark.parametrize(
    ("given", "want"), [(Shard(0), Shard(0)), (Shard(1), Shard(1)), (Shard(2), R), (PARTIAL, R), (R, R)]
)
def test_a_norm_needs_its_last_dim_whole(given: Placement, want: Placement) -> None:
    forward = ask((given, R), (X, (64,)), (X, ROW), NormAttrs("rms"))
    assert answer_for("norm", forward) == Answer((want, R), (want, want))
    backward = ask((R, given, R, R), (X, X, ROW, (64,)), (X, (64,)), NormAttrs("rms"))
    dweight = PARTIAL if isinstance(want, Shard) else R
    assert answer_for("norm_bwd", backward) == Answer((want, want, want, R), (want, dweight))


def test_softmax_needs_its_dim_whole() -> None:
    assert answer_for("softmax", ask((Shard(1),), (X,), (X,), DimAttrs(2))) == Answer((Shard(1),), (Shard(1),))
    assert answer_for("softmax", ask((Shard(2),), (X,), (X,), DimAttrs(2))) == Answer((R,), (R,))


@pytest.mark.parametrize(
    ("fn", "p", "want", "result"),
    [
        ("sum", Shard(1), Shard(1), PARTIAL),
        ("mean", Shard(1), Shard(1), PARTIAL),
        ("max", Shard(1), R, R),  # the largest of the largest is no sum
        ("sum", Shard(2), Shard(2), Shard(1)),  # the dims behind move up
        ("sum", Shard(0), Shard(0), Shard(0)),
        ("sum", PARTIAL, PARTIAL, PARTIAL),
        ("max", PARTIAL, R, R),
    ],
)
def test_reductions(fn: str, p: Placement, want: Placement, result: Placement) -> None:
    given = ask((p,), (X,), ((2, 64),), ReduceAttrs(fn, (1,)))
    assert answer_for("reduce", given) == Answer((want,), (result,))


def test_the_loss_over_sharded_rows_is_a_partial_mean() -> None:
    p = Shard(0)
    forward = ask((p, R), (X, X[:2]), ((), (2, 16, 3)))
    assert answer_for("cross_entropy", forward) == Answer((p, p), (PARTIAL, p))
    backward = ask((R, p, R, p), ((), X, X[:2], (2, 16, 3)), (X,))
    assert answer_for("cross_entropy_bwd", backward) == Answer((R, p, p, p), (p,))


def test_the_loss_over_a_sharded_vocabulary_has_partial_statistics() -> None:
    p = Shard(2)
    forward = ask((p, R), (X, X[:2]), ((), (2, 16, 3)))
    assert answer_for("cross_entropy", forward) == Answer((p, R), (R, PARTIAL))
    backward = ask((R, p, R, R), ((), X, X[:2], (2, 16, 3)), (X,))
    assert answer_for("cross_entropy_bwd", backward) == Answer((R, p, R, R), (p,))
