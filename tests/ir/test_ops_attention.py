"""Attention and the KV cache: two GEMMs forward, five backward, counted by hand."""

import pytest

from slipstick.ir.expr import Dim, as_expr, symbol
from slipstick.ir.graph import Attrs
from slipstick.ir.ops import op_def
from slipstick.ir.ops.attention import AttentionAttrs, KvAppendAttrs
from slipstick.ir.ops.base import OpCall, Work
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
        (OpCall("attention", AttentionAttrs(), (Q, K), (OUT, LSE)), "takes 3 to 4 inputs, has 2"),
        (OpCall("attention", AttentionAttrs(), (Q, K, V), (OUT,)), "makes 2 outputs, has 1"),
        (OpCall("attention_bwd", AttentionAttrs(), (OUT, Q, K, V, OUT, LSE), (Q, Q, V)),
         "gradient of k: [1, 2, 3, 4] is not [1, 2, 5, 4]"),
        (OpCall("attention_bwd", AttentionAttrs(), (OUT, t(2), K, V, OUT, LSE), (t(2), K, V)),
         "q, k and v must have the dims [batch, heads, length, head dim]"),
        (append(t(1, 8, 1, 4), t(1, 8, 7, 4), t(1, 8, 5, 4)),
         "the cache after the append: [1, 8, 7, 4] is not [1, 8, 6, 4]"),
        (append(t(1, 8), t(1, 8)), "dim 2 is not a dim of bf16[1, 8]"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_named(call: OpCall, message: str) -> None:
    assert message in list(op_def(call.op).complaints(call))
