"""Attention and the KV cache: two GEMMs forward, five backward, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.graph import Attrs
from slipstick.ir.ops import op_def
from slipstick.ir.ops.base import OpCall, Work
from slipstick.ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from slipstick.ir.ops.fused.index_keys import IndexAttrs
from slipstick.ir.sizes.expr import Dim, as_expr, symbol
from slipstick.ir.sizes.masking import executed_share
from slipstick.ir.types import DType, TensorType

B, S, KV, TP = symbol("batch"), symbol("seq"), symbol("kv"), symbol("tp")


def t(*dims: Dim, dtype: str = "bf16") -> TensorType:
    return TensorType(dims, DType(dtype))


def work(call: OpCall) -> Work:
    assert list(op_def(call.op).complaints(call)) == []
    return op_def(call.op).work(call)


def forward(q: TensorType, k: TensorType, v: TensorType, attrs: Attrs | None = None) -> OpCall:
    b, h, s, _ = q.dims
    out, lse = t(b, s, h, v.dims[3]), t(b, h, s, dtype="fp32")
    return OpCall("attention", attrs or AttentionAttrs(), (q, k, v), (out, lse))


def backward(q: TensorType, k: TensorType, v: TensorType) -> OpCall:
    made = forward(q, k, v).outputs
    return OpCall("attention_bwd", AttentionAttrs(), (made[0], q, k, v, *made), (q, k, v))


# batch 1, 2 heads, 3 queries, 5 keys, d_qk = d_v = 4: 30 pairs (query, key, head).
Q, K, V = t(1, 2, 3, 4), t(1, 2, 5, 4), t(1, 2, 5, 4)


def test_forward_is_two_gemms_over_all_pairs() -> None:
    found = work(forward(Q, K, V))
    assert found.tensor_flops == 30 * (2 * 4) + 30 * (2 * 4)  # scores, then scores times v
    assert found.vector_flops == 30 * 7
    assert found.read_bytes == (24 + 40 + 40) * 2
    assert found.write_bytes == 24 * 2 + 6 * 4  # result bf16, log-sum-exp fp32
    assert found.model_share == 1


def test_backward_is_five_gemms_of_which_four_are_the_models() -> None:
    found = work(backward(Q, K, V))
    assert found.tensor_flops == 5 * 30 * 2 * 4
    assert found.model_share == pytest.approx(4 / 5)
    assert found.vector_flops == 30 * 8
    assert found.read_bytes == (24 + 24 + 40 + 40 + 24) * 2 + 6 * 4  # dO, q, k, v, O and log-sum-exp
    assert found.write_bytes == (24 + 40 + 40) * 2
    assert found.attention is not None
    assert found.attention.num_gemms == 5


def test_grouped_queries_change_bytes_and_not_flops() -> None:
    k = t(1, 1, 5, 4)
    grouped, full = work(forward(Q, k, k)), work(forward(Q, K, V))
    assert grouped.tensor_flops == full.tensor_flops
    assert full.read_bytes - grouped.read_bytes == 2 * 20 * 2  # one head less of k and v
    assert grouped.attention is not None
    assert grouped.attention.heads == 2
    assert grouped.attention.kv_heads == 1


def test_value_heads_of_another_size() -> None:
    # Multi-head latent attention: d_qk = 6, d_v = 4; scores, dQ and dK have 6, P V, dV and dP have 4.
    q, k, v = t(1, 2, 3, 6), t(1, 2, 5, 6), t(1, 2, 5, 4)
    assert work(forward(q, k, v)).tensor_flops == 30 * 2 * (6 + 4)
    found = work(backward(q, k, v))
    assert found.tensor_flops == 30 * 2 * (6 + 4 + 4 + 6 + 6)
    assert found.model_share == pytest.approx(1 - 6 / 26)  # the scores are recomputed


def test_a_symbolic_call() -> None:
    # 32 heads over tp, 8 kv heads over tp, head dim 128: 2 * 2 * batch * (32/tp) * seq * kv * 128.
    q, k = t(B, as_expr(32) / TP, S, 128), t(B, as_expr(8) / TP, KV, 128)
    assert work(forward(q, k, k)).tensor_flops == B * S * KV * (4 * 32 * 128) / TP


def test_the_shape_that_time_models_see() -> None:
    shape = work(forward(Q, K, V, AttentionAttrs(causal=False, window=2))).attention
    assert shape is not None
    assert [shape.batch, shape.q_len, shape.kv_len] == [as_expr(1), as_expr(3), as_expr(5)]
    assert (shape.qk_dim, shape.v_dim) == (4, 4)
    assert (shape.causal, shape.window, shape.num_gemms) == (False, 2, 2)


def test_a_symbolic_head_dim_is_refused() -> None:
    call = forward(t(1, 2, 3, S), t(1, 2, 5, S), t(1, 2, 5, 4))
    with pytest.raises(TypeError, match="head dim of attention must be a number, is 'seq'"):
        op_def("attention").work(call)


def test_a_bias_is_read_once_and_added_to_every_score() -> None:
    bias = t(1, 2, 1, 5)  # ALiBi: one a head and key
    out, lse = forward(Q, K, V).outputs
    found = work(OpCall("attention", AttentionAttrs(bias=True), (Q, K, V, bias), (out, lse)))
    assert found.vector_flops == 30 * (7 + 1)
    assert found.read_bytes == (24 + 40 + 40 + 10) * 2
    assert found.tensor_flops == work(forward(Q, K, V)).tensor_flops
    assert found.attention is not None
    assert found.attention.extra_bytes == 10 * 2


def test_the_gradient_of_a_learned_bias_is_a_sum_over_the_scores() -> None:
    bias = t(1, 2, 3, 5)
    out, lse = forward(Q, K, V).outputs
    given = (out, Q, K, V, out, lse, bias)
    fixed = work(OpCall("attention_bwd", AttentionAttrs(bias=True), given, (Q, K, V)))
    learned = work(OpCall("attention_bwd", AttentionAttrs(bias=True), given, (Q, K, V, bias)))
    assert fixed.vector_flops == 30 * (8 + 1)
    assert learned.vector_flops == 30 * (8 + 1 + 1)
    assert learned.write_bytes - fixed.write_bytes == 30 * 2
    assert learned.attention is not None
    assert learned.attention.extra_bytes == 2 * 30 * 2  # read, and its gradient written


def test_a_soft_cap_is_a_tanh_and_two_products_a_score() -> None:
    capped = AttentionAttrs(softcap=50.0)
    assert work(forward(Q, K, V, capped)).vector_flops == 30 * (7 + 8 + 2)
    assert work(replace(backward(Q, K, V), attrs=capped)).vector_flops == 30 * (8 + 8 + 2 + 3)


def test_chosen_keys_limit_what_a_query_sees_and_come_as_ids() -> None:
    ids = t(1, 3, 2, dtype="int32")
    out, lse = forward(Q, K, V).outputs
    found = work(OpCall("attention", AttentionAttrs(keys=2), (Q, K, V, ids), (out, lse)))
    assert found.attention is not None
    assert (found.attention.reach, found.attention.window) == (2, 0)
    assert found.attention.extra_bytes == 6 * 4
    # Queries at positions 2, 3, 4 of 5 keys see 2 keys each, of 15 pairs of a head: 6.
    share = executed_share(np.array(3.0), np.array(5.0), True, found.attention.reach)
    assert float(share) == pytest.approx(6 / 15)


@pytest.mark.parametrize(("q", "kv", "window"), [(1024, 1024, 256), (3, 9, 2), (5, 9, 100), (9, 9, 8), (1, 9, 3)])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_leaves_the_pairs_that_its_mask_leaves(q: int, kv: int, window: int, causal: bool) -> None:
    # Causal windows hold the query's own key; the others count keys to either side.
    ahead = np.arange(kv)[None] - np.arange(kv - q, kv)[:, None]
    mask = (ahead <= 0) & (ahead > -window) if causal else np.abs(ahead) <= window
    share = executed_share(np.array(float(q)), np.array(float(kv)), causal, window)
    assert float(share) * q * kv == pytest.approx(mask.sum())


def test_an_indexer_is_one_product_over_all_pairs_and_its_scores_in_memory() -> None:
    # 4 light heads of width 8, 3 queries, 5 keys, 2 chosen.
    call = OpCall("index_keys", IndexAttrs(2), (t(1, 4, 3, 8), t(1, 1, 5, 8), t(1, 3, 4)), (t(1, 3, 2, dtype="int32"),))
    found = work(call)
    assert found.tensor_flops == 4 * 3 * 5 * 2 * 8
    assert found.vector_flops == 4 * 3 * 5 * 3
    assert found.read_bytes == (96 + 40 + 12) * 2 + 15 * 4
    assert found.write_bytes == 6 * 4 + 15 * 4


def append(new: TensorType, out: TensorType, *cache: TensorType, dim: int = 2) -> OpCall:
    return OpCall("kv_append", KvAppendAttrs(dim), (*cache, new), (out,))


def test_append_moves_the_new_tokens_only() -> None:
    found = work(append(t(B, 8, 1, 128), t(B, 8, KV + 1, 128), t(B, 8, KV, 128)))
    assert found.read_bytes == found.write_bytes == B * 8 * 128 * 2
    assert found.tensor_flops == found.vector_flops == 0


def test_append_to_nothing_makes_the_cache() -> None:
    assert work(append(t(1, 8, 5, 4), t(1, 8, 5, 4))).num_bytes == 2 * 8 * 5 * 4 * 2


OUT, LSE = forward(Q, K, V).outputs


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (OpCall("attention", AttentionAttrs(), (t(2, 3, 4), K, V), (OUT, LSE)),
         "q, k and v must have the dims [batch, heads, length, head dim]"),
        (OpCall("attention", AttentionAttrs(), (Q, K, t(1, 2, 6, 4)), (OUT, LSE)),
         "batch, heads and length of k and v: [1, 2, 5] is not [1, 2, 6]"),
        (OpCall("attention", AttentionAttrs(), (Q, t(1, 2, 5, 8), V), (OUT, LSE)),
         "batch and head dim of q and k: [1, 4] is not [1, 8]"),
        (OpCall("attention", AttentionAttrs(), (Q, K, V), (t(1, 2, 3, 4), LSE)),
         "result [batch, length, heads, head dim]: [1, 2, 3, 4] is not [1, 3, 2, 4]"),
        (OpCall("attention", AttentionAttrs(), (Q, K, V), (OUT, t(1, 3, 2))),
         "log-sum-exp [batch, heads, length]: [1, 3, 2] is not [1, 2, 3]"),
        (OpCall("attention", AttentionAttrs(), (Q, K), (OUT, LSE)), "takes 3 to 6 inputs, has 2"),
        (OpCall("attention", AttentionAttrs(), (Q, K, V), (OUT,)), "makes 2 outputs, has 1"),
        (OpCall("attention_bwd", AttentionAttrs(), (OUT, Q, K, V, OUT, LSE), (Q, Q, V)),
         "gradient of k: [1, 2, 3, 4] is not [1, 2, 5, 4]"),
        (OpCall("attention_bwd", AttentionAttrs(), (OUT, t(2), K, V, OUT, LSE), (t(2), K, V)),
         "q, k and v must have the dims [batch, heads, length, head dim]"),
        (OpCall("attention", AttentionAttrs(bias=True), (Q, K, V, t(1, 2, 3)), (OUT, LSE)),
         "bias, or 1 where it is the same for all, and scores: [1, 2, 3] is not [1, 2, 3, 5]"),
        (OpCall("attention", AttentionAttrs(bias=True), (Q, K, V, t(1, 3, 3, 5)), (OUT, LSE)),
         "bias, or 1 where it is the same for all, and scores: [1, 3, 3, 5] is not [1, 2, 3, 5]"),
        (OpCall("attention", AttentionAttrs(keys=2), (Q, K, V, t(1, 3, 4)), (OUT, LSE)),
         "ids [batch, queries, keys]: [1, 3, 4] is not [1, 3, 2]"),
        (OpCall("attention", AttentionAttrs(bias=True, keys=2), (Q, K, V, t(1, 3, 2)), (OUT, LSE)),
         "takes bias and ids behind its tensors, has 1 inputs there"),
        (append(t(1, 8, 1, 4), t(1, 8, 7, 4), t(1, 8, 5, 4)),
         "the cache after the append: [1, 8, 7, 4] is not [1, 8, 6, 4]"),
        (append(t(1, 8), t(1, 8)), "dim 2 is not a dim of bf16[1, 8]"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_named(call: OpCall, message: str) -> None:
    assert message in list(op_def(call.op).complaints(call))


@given(st.integers(1, 300), st.integers(1, 300), st.booleans(), st.integers(0, 300), st.booleans())
def test_a_share_is_a_part_of_all_pairs(q: int, kv: int, causal: bool, window: int, balanced: bool) -> None:
    share = float(executed_share(np.array(float(q)), np.array(float(kv)), causal, window, balanced))
    assert 0.0 < share <= 1.0


@given(st.integers(1, 20), st.integers(1, 20))
def test_keys_that_stand_for_several_positions_are_seen_by_as_many_queries(keys: int, rate: int) -> None:
    """Query p looks at the windows of `rate` tokens up to its own."""
    seen = sum(p // rate + 1 for p in range(keys * rate))
    share = executed_share(np.array(float(keys * rate)), np.array(float(keys)), True, 0)
    assert float(share) == pytest.approx(seen / (keys * rate * keys))
