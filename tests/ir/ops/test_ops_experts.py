"""Expert banks and grouped products: GEMM dims, FLOPs and bytes counted by hand."""

from dataclasses import replace

import pytest

from slipstick.ir.ops import op_def
from slipstick.ir.ops.base import OpCall, Work
from slipstick.ir.ops.fused.experts import ExpertsAttrs, GroupedAttrs, experts_shape
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType

TOKENS = symbol("tokens")


def t(*dims: Dim, dtype: str = "bf16") -> TensorType:
    return TensorType(dims, DType(dtype))


def work(call: OpCall) -> Work:
    assert list(op_def(call.op).complaints(call)) == []
    return op_def(call.op).work(call)


# 3 tokens to 2 of 4 experts each: 6 rows; hidden 8, inner size 5, gated up-projection of width 10.
X, IDS, WEIGHTS = t(3, 8), t(3, 2, dtype="int64"), t(3, 2)
UP, DOWN = t(4, 10, 8), t(4, 8, 5)
SAVED = (t(6, 8), t(6, 10), t(6, 5), t(6, 8))  # routed tokens, up, activation, down
FORWARD = OpCall("experts", ExpertsAttrs(), (X, IDS, WEIGHTS, UP, DOWN), (X, *SAVED))
BACKWARD = OpCall("experts_bwd", ExpertsAttrs(), (X, X, IDS, WEIGHTS, UP, DOWN, *SAVED), (X, WEIGHTS, UP, DOWN))


def gemms(found: Work) -> list[tuple[object, ...]]:
    return [(g.m, g.n, g.k, g.groups) for g in found.gemms]


def test_forward_is_two_grouped_gemms_over_the_routed_rows() -> None:
    found = work(FORWARD)
    assert found.tensor_flops == 2 * 6 * 8 * 10 + 2 * 6 * 5 * 8
    assert gemms(found) == [(6, 10, 8, 4), (6, 8, 5, 4)]


def test_forward_bytes_and_vector_flops() -> None:
    found = work(FORWARD)
    # x, ids (8 bytes each) and routing weights; all expert weights; then each intermediate once.
    assert found.read_bytes == 24 * 2 + 6 * 8 + 6 * 2 + (320 + 160) * 2 + (48 + 60 + 30 + 48) * 2
    assert found.write_bytes == (24 + 48 + 60 + 30 + 48) * 2
    assert found.vector_flops == 30 * 11 + 48 * 2  # activation a row and inner element, combine a row and channel


def test_backward_is_four_grouped_gemms_of_the_same_size() -> None:
    found = work(BACKWARD)
    assert found.tensor_flops == 2 * (2 * 6 * 8 * 10 + 2 * 6 * 5 * 8)
    # dgrad and wgrad of down (8 x 5), then of up (10 x 8).
    assert gemms(found) == [(6, 5, 8, 4), (8, 5, 6, 4), (6, 8, 10, 4), (10, 8, 6, 4)]
    total = sum((g.m * g.n * g.k * 2 for g in found.gemms), start=TOKENS * 0)
    assert total == found.tensor_flops


def test_backward_bytes() -> None:
    found = work(BACKWARD)
    inner = 6 * (2 * 10 + 2 * 5 + 2 * 8) * 2
    saved = (48 + 60 + 30 + 48) * 2
    assert found.read_bytes == 24 * 2 * 2 + 6 * 8 + 6 * 2 + (320 + 160) * 2 + saved + inner
    assert found.write_bytes == (24 + 6 + 320 + 160) * 2 + inner


def test_transposed_weights_cost_the_same() -> None:
    inputs = (X, IDS, WEIGHTS, t(4, 8, 10), t(4, 5, 8))
    call = replace(FORWARD, attrs=ExpertsAttrs(transposed=True), inputs=inputs)
    assert work(call) == work(FORWARD)


def test_symbolic_tokens() -> None:
    x, ids = t(TOKENS, 8), t(TOKENS, 2, dtype="int64")
    saved = tuple(t(TOKENS * 2, s.dims[1]) for s in SAVED)
    call = replace(FORWARD, inputs=(x, ids, t(TOKENS, 2), UP, DOWN), outputs=(x, *saved))
    assert experts_shape(call).rows == TOKENS * 2
    assert work(call).tensor_flops == TOKENS * 2 * (2 * 8 * 10 + 2 * 5 * 8)


def test_experts_dealt_out_by_a_symbol_are_counted_by_it() -> None:
    held = symbol("num")
    call = replace(FORWARD, inputs=(X, IDS, WEIGHTS, t(held, 10, 8), t(held, 8, 5)))
    assert [g.groups for g in work(call).gemms] == [held, held]
    product = OpCall("grouped_matmul", GroupedAttrs(), (t(6, 8), t(held, 8, 10), t(4, dtype="int32")), (t(6, 10),))
    assert [g.groups for g in work(product).gemms] == [held]


def grouped(out: TensorType, a: TensorType, b: TensorType, weight_grad: bool = False) -> OpCall:
    return OpCall("grouped_matmul", GroupedAttrs(weight_grad), (a, b, t(4, dtype="int32")), (out,))


def test_each_row_meets_one_matrix() -> None:
    found = work(grouped(t(6, 10), t(6, 8), t(4, 8, 10)))
    assert found.tensor_flops == 2 * 6 * 8 * 10
    assert gemms(found) == [(6, 10, 8, 4)]
    assert found.read_bytes == (48 + 320) * 2
    assert found.write_bytes == 60 * 2


def test_a_weight_gradient_sums_over_the_rows_of_its_group() -> None:
    found = work(grouped(t(4, 8, 10), t(8, 6), t(6, 10), weight_grad=True))
    assert found.tensor_flops == 2 * 6 * 8 * 10
    assert gemms(found) == [(8, 10, 6, 4)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (replace(FORWARD, inputs=(X, t(6), WEIGHTS, UP, DOWN)),
         "x, ids, routing weights, up and down must have the ranks (2, 2, 2, 3, 3), have (2, 1, 2, 3, 3)"),
        (replace(FORWARD, outputs=(t(3, 9), *SAVED)), "result and tokens: [3, 9] is not [3, 8]"),
        (replace(FORWARD, outputs=(X, t(3, 8), *SAVED[1:])), "routed tokens: [3, 8] is not [6, 8]"),
        (replace(FORWARD, outputs=(X, SAVED[0], t(6, 5), *SAVED[2:])), "up projection: [6, 5] is not [6, 10]"),
        (replace(FORWARD, outputs=(X, *SAVED[:2], t(6, 10), SAVED[3])), "activation: [6, 10] is not [6, 5]"),
        (replace(FORWARD, outputs=(X, *SAVED[:3], t(6, 5))), "down projection: [6, 5] is not [6, 8]"),
        (replace(FORWARD, outputs=(X,)), "makes 5 outputs, has 1"),
        (replace(BACKWARD, outputs=(X, WEIGHTS, DOWN, DOWN)), "gradient of up: [4, 8, 5] is not [4, 10, 8]"),
        (replace(BACKWARD, inputs=(*BACKWARD.inputs[:5], t(8), *SAVED)),
         "dOut, x, ids, routing weights, up and down must have the ranks (2, 2, 2, 2, 3, 3), have (2, 2, 2, 2, 3, 1)"),
        (replace(BACKWARD, inputs=BACKWARD.inputs[:6]), "takes 10 inputs, has 6"),
        (grouped(t(6, 10), t(6, 8, 1, 1), t(4, 8, 10)),
         "operands must be [rows, k] and [groups, k, n], or [k, rows] and [rows, n] for a weight gradient"),
        (grouped(t(6, 10), t(6, 9), t(4, 8, 10)), "inner dim of a and columns of b: [9, 10] is not [8, 10]"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_named(call: OpCall, message: str) -> None:
    assert message in list(op_def(call.op).complaints(call))


def test_operands_of_a_grouped_product_have_two_or_three_dims() -> None:
    for a, b, out in ((t(2, 6, 8, 1), t(4, 8, 10), t(6, 10)), (t(6, 8), t(10), t(6, 10)), (t(6, 8), t(4, 8, 10), t(6))):
        (said,) = op_def("grouped_matmul").complaints(grouped(out, a, b))
        assert said.startswith("operands must be [rows, k] and [groups, k, n]")
