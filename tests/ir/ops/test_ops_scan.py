"""Scans: work of the forms in steps and in chunks by hand, and what their types must be."""

from __future__ import annotations

import pytest

from slipstick.ir.ops import OpCall, OpClass, Work, op_def
from slipstick.ir.ops.fused.scan import ScanAttrs, ScanBwdAttrs
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.types import DType, TensorType

# Batch 2, length 128, 8 heads of p = 16 with states of n = 32; q and k of 2 groups.
B, L, H, G, N, P, C = 2, 128, 8, 2, 32, 16, 64
TOKENS = B * L


def bf16(*dims: int) -> TensorType:
    return TensorType(dims, DType.BF16)


def fp32(*dims: int) -> TensorType:
    return TensorType(dims, DType.FP32)


V, QK, STEP, DECAY, STATE = bf16(B, L, H, P), bf16(B, L, G, N), bf16(B, L, H), fp32(H), fp32(B, H, N, P)
OPERANDS = (V, QK, QK, STEP, DECAY)


def forward(kind: str, chunk: int, others: tuple[TensorType, ...] = OPERANDS, state: bool = False) -> OpCall:
    inputs = (*others, STATE) if state else others
    return OpCall("scan", ScanAttrs(kind, chunk, state), inputs, (V, STATE))


def backward(kind: str, chunk: int, others: tuple[TensorType, ...] = OPERANDS) -> OpCall:
    return OpCall("scan_bwd", ScanBwdAttrs(kind, chunk, state_dim=N), (V, *others), others)


def work(call: OpCall) -> Work:
    assert list(op_def(call.op).complaints(call)) == []
    return op_def(call.op).work(call)


def test_mamba_takes_nine_flops_a_token_channel_and_state() -> None:
    """As its authors count: 9 B L D N, and B L D for each of the skip's and the gate's operands."""
    channels = 64
    x, gate, shared = bf16(B, L, channels, 1), bf16(B, L, channels), bf16(B, L, 1, N)
    call = OpCall(
        "scan", ScanAttrs("selective"), (x, shared, shared, gate, fp32(channels, N)), (x, fp32(B, channels, N, 1))
    )
    found = work(call)
    assert found.tensor_flops == 0
    assert found.vector_flops == 9 * TOKENS * channels * N + TOKENS * channels


@pytest.mark.parametrize(("kind", "a_token"), [("ssd", 5), ("linear", 5), ("delta", 7), ("gated", 2)])
def test_a_step_decays_adds_and_reads_the_state(kind: str, a_token: int) -> None:
    assert work(forward(kind, 0)).vector_flops == TOKENS * (a_token * H * N * P + H)


def test_state_space_duality_in_chunks_is_four_products() -> None:
    """Scores once a group 2 c n; scores times values 2 c p, states and readout 2 n p each once a head."""
    scores, inside, states = 2 * C * N * G, 2 * C * P * H, 2 * N * P * H
    assert work(forward("ssd", C)).tensor_flops == TOKENS * (scores + inside + 2 * states)
    assert len(work(forward("ssd", C)).gemms) == 4


def test_linear_attention_has_scores_a_head() -> None:
    assert work(forward("linear", C)).tensor_flops == TOKENS * H * (2 * C * (N + P) + 4 * N * P)


def test_the_delta_rule_adds_keys_with_keys_an_inverse_and_what_the_state_holds() -> None:
    """Three products of 2 c n, two of 2 c p and three of 2 n p: Q K, K K, T K; T V, scores V; with states; T c^3/3."""
    want = TOKENS * H * (6 * C * N + 4 * C * P + 6 * N * P + C * C / 3)
    assert float(work(forward("delta", C)).tensor_flops.evaluate({})) == pytest.approx(want)


def test_operands_move_once_and_states_between_chunks_there_and_back() -> None:
    operands = 2 * (TOKENS * (H * P + 2 * G * N + H)) + 4 * H
    result, last, between = 2 * TOKENS * H * P, 4 * B * H * N * P, 4 * (TOKENS // C) * H * N * P
    found = work(forward("ssd", C))
    assert found.read_bytes == operands + between
    assert found.write_bytes == result + last + between


def test_a_decode_step_reads_and_writes_the_state_once() -> None:
    one = (bf16(B, 1, H, P), bf16(B, 1, G, N), bf16(B, 1, G, N), bf16(B, 1, H), DECAY)
    call = OpCall("scan", ScanAttrs("ssd", has_state=True), (*one, STATE), (one[0], STATE))
    state = 4 * B * H * N * P
    assert work(call).read_bytes == 2 * B * (H * P + 2 * G * N + H) + 4 * H + state
    assert work(call).write_bytes == 2 * B * H * P + state


def test_backward_makes_scores_and_states_again_and_two_products_for_each() -> None:
    forward_flops = work(forward("ssd", C)).tensor_flops
    again = TOKENS * (2 * C * N * G + 2 * N * P * H)
    found = work(backward("ssd", C))
    assert found.tensor_flops == forward_flops * 2 + again
    new = float((forward_flops * 2).evaluate({}))
    assert found.model_share == pytest.approx(new / (new + again))


def test_backward_of_the_delta_rule_goes_through_the_inverse() -> None:
    """Its gradient is two products of c x c matrices in place of c^3/3; W, U, U - W S, scores, states come again."""
    new = H * (2 * (6 * C * N + 4 * C * P + 6 * N * P) + 4 * C * C)
    again = H * (4 * C * N + 2 * C * P + 4 * N * P)
    assert work(backward("delta", C)).tensor_flops == TOKENS * (new + again)


def test_backward_in_steps_runs_the_state_forward_and_its_gradient_back() -> None:
    assert work(backward("linear", 0)).vector_flops == TOKENS * (14 * H * N * P + 2 * H)


def test_work_stays_an_expression_of_open_sizes() -> None:
    tokens = symbol("batch") * symbol("seq")
    x = TensorType((symbol("batch"), symbol("seq"), H, P), DType.BF16)
    qk = TensorType((symbol("batch"), symbol("seq"), 1, N), DType.BF16)
    state = TensorType((symbol("batch"), H, N, P), DType.FP32)
    call = OpCall("scan", ScanAttrs("ssd", C), (x, qk, qk), (x, state))
    assert work(call).tensor_flops == tokens * (2 * C * N + H * (2 * C * P + 4 * N * P))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (forward("sd", 0), "kind 'sd' is none of selective, ssd, delta, linear, gated"),
        (forward("selective", 64), "chunk 64 for kind selective"),
        (forward("ssd", C, (V, bf16(B, L + 1, G, N))), "does not begin with the batch and length"),
        (forward("ssd", C, (V, QK, fp32(H + 1))), "does not begin with the heads"),
        (OpCall("scan", ScanAttrs("ssd"), OPERANDS, (QK, STATE)), "result and values"),
        (OpCall("scan", ScanAttrs("ssd"), OPERANDS, (V, fp32(B, H, N, P + 1))), "state [batch, heads, n, p]"),
        (OpCall("scan_bwd", ScanBwdAttrs("ssd"), (QK, *OPERANDS), OPERANDS), "gradient of the result"),
    ],
)
def test_wrong_types_are_named(call: OpCall, complaint: str) -> None:
    assert any(complaint in found for found in op_def(call.op).complaints(call))


def test_a_state_that_is_kept_costs_nothing_by_itself() -> None:
    kept = OpCall("keep_state", op_def("keep_state").attrs(), (STATE,), (STATE,))
    assert op_def("keep_state").kind is OpClass.FREE
    assert work(kept) == Work()


def test_scans_print_and_parse() -> None:
    text = """slipstick.graph 1
graph "one" decode bf16
schedule body
region body
  %0 = input "v" : bf16[batch, 1, 8, 16]
  %1 = cache "cache.*.state" : fp32[batch, 8, 32, 16]
  %2, %3 = scan(%0, %1) {kind="ssd", has_state=true} : bf16[batch, 1, 8, 16] ; fp32[batch, 8, 32, 16] ~1
  %4 = keep_state(%3) : fp32[batch, 8, 32, 16] ~1
end
"""
    graph = parse_graph(text)
    assert [n.op for n in graph.regions[0].nodes] == ["scan", "keep_state"]
    assert graph.regions[0].nodes[0].attrs == ScanAttrs("ssd", has_state=True)


def test_values_and_state_have_four_dims() -> None:
    flat = OpCall("scan", ScanAttrs("linear", C), (bf16(TOKENS, H, P), *OPERANDS[1:]), (bf16(TOKENS, H, P), STATE))
    (said,) = op_def("scan").complaints(flat)
    assert said.startswith("values must be [batch, length, heads, p]")


def test_backward_of_the_delta_rule_repeats_five_products() -> None:
    """Scores K K^T, states, W = T K, U = T V and W S: the other products of backward are gradients of its own."""
    many = B * L // C * H
    again = [(many, C, C, N), (many, N, P, C), (many, C, N, C), (many, C, P, C), (many, C, P, N)]
    found = work(backward("delta", C)).gemms
    assert [tuple(map(str, (g.batch, g.m, g.n, g.k))) for g in found[:5]] == [tuple(map(str, row)) for row in again]
