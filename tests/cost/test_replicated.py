"""What tensor parallelism leaves whole, against sums over the sizes of tiny-llama."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.cost.replicated import Replicated
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family

Traced = Callable[[str], Graph]

HIDDEN, FFN, VOCAB, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 160, 2, 4, 2, 16
KV = 2 * KV_HEADS * HEAD_DIM * HIDDEN
LAYER = 2 * HEADS * HEAD_DIM * HIDDEN + KV + 3 * FFN * HIDDEN
NORMS = (2 * LAYERS + 1) * HIDDEN
ALL = LAYERS * LAYER + 2 * VOCAB * HIDDEN + NORMS
SEQ = 32
# Products of a token, forward and backward, and attention's two, whose backward has five (FlashAttention-2).
PRODUCTS = 3 * 2 * (LAYERS * LAYER + VOCAB * HIDDEN)
ATTENTION = LAYERS * (2 + 5) * 2 * SEQ * HEADS * HEAD_DIM


def replicated(graph: Graph, tp: float, tp_plan: str) -> Replicated:
    lowered = lower(graph, Family(tp_plan=tp_plan)).graph
    return Replicated.of(lowered, {"mbs": 1.0, "seq": SEQ, "kv": SEQ, "dp": 2.0, "tp": tp})


def test_a_plan_for_all_layers_leaves_the_norms(traced: Traced) -> None:
    found = replicated(traced("tiny-llama.train"), 2, "megatron")
    assert found.bytes_share == pytest.approx(NORMS / ALL, rel=1e-12)
    assert found.flops_share == 0
    assert [name.rpartition(".")[2] for name, _ in found.parameters] == ["weight"] * 3


def test_a_plan_for_layers_alone_leaves_table_and_head(traced: Traced) -> None:
    found = replicated(traced("tiny-llama.train"), 2, "dtensor-naive")
    assert found.bytes_share == pytest.approx((NORMS + 2 * VOCAB * HIDDEN) / ALL, rel=1e-12)
    assert found.flops_share == pytest.approx(3 * 2 * VOCAB * HIDDEN / (PRODUCTS + ATTENTION), rel=1e-12)
    assert dict(found.modules) == {"lm_head": found.flops_share}
    table = VOCAB * HIDDEN / ALL
    assert found.line == (
        f"replicated over tp: {found.bytes_share:.1%} of parameter bytes (model.embed_tokens.weight {table:.1%}, "
        f"lm_head.weight {table:.1%}), {found.flops_share:.1%} of FLOPs (lm_head {found.flops_share:.1%})"
    )


def test_copies_of_heads_are_partly_replicated(traced: Traced) -> None:
    """Four ranks hold two heads twice: of 4 x 1/2 of the keys and values 1 is needed, and 3 would be all copies."""
    found = replicated(traced("tiny-llama.train"), 4, "megatron")
    assert found.bytes_share == pytest.approx((NORMS + LAYERS * KV / 3) / ALL, rel=1e-12)
    assert found.flops_share == pytest.approx(3 * 2 * LAYERS * KV / 3 / (PRODUCTS + ATTENTION), rel=0.02)
