"""Convolutions: work by hand, groups and positions as their types say."""

from __future__ import annotations

import pytest

from slipstick.ir.ops import OpCall, Work, op_def
from slipstick.ir.ops.tensors.conv import ConvAttrs
from slipstick.ir.sizes.expr import as_expr
from slipstick.ir.types import DType, TensorType


def t(*dims: int) -> TensorType:
    return TensorType(dims, DType.BF16)


def call(x: TensorType, weight: TensorType, y: TensorType, attrs: ConvAttrs, *more: TensorType) -> OpCall:
    return OpCall("conv", attrs, (x, weight, *more), (y,))


def work(c: OpCall) -> Work:
    assert list(op_def(c.op).complaints(c)) == []
    return op_def(c.op).work(c)


PATCHES = call(t(2, 3, 28, 42), t(64, 3, 14, 14), t(2, 64, 2, 3), ConvAttrs((14, 14), (0, 0), (1, 1)))
CAUSAL = ConvAttrs((1,), (0,), (1,), causal=True, activation="silu")


def test_patches_are_a_product_of_matrices() -> None:
    found = work(PATCHES)
    assert found.tensor_flops == 2 * (2 * 64 * 2 * 3) * (3 * 14 * 14)
    (gemm,) = found.gemms
    assert [gemm.batch, gemm.m, gemm.n, gemm.k] == [as_expr(d) for d in (1, 2 * 2 * 3, 64, 3 * 14 * 14)]


def test_groups_are_read_off_the_weight() -> None:
    found = work(call(t(1, 8, 10), t(12, 2, 3), t(1, 12, 8), ConvAttrs((1,), (0,), (1,))))
    assert found.tensor_flops == 2 * (12 * 8) * (2 * 3)
    (gemm,) = found.gemms
    assert [gemm.batch, gemm.m, gemm.n, gemm.k] == [as_expr(d) for d in (4, 8, 3, 6)]


def test_a_depthwise_convolution_multiplies_no_matrices() -> None:
    """2 x 4 FLOPs a result, and 10 for its activation; x, weight, bias read and y written once."""
    found = work(call(t(2, 64, 100), t(64, 1, 4), t(2, 64, 100), CAUSAL, t(64)))
    assert found.tensor_flops == 0
    assert found.vector_flops == 2 * 64 * 100 * (2 * 4 + 10)
    assert found.read_bytes == 2 * (2 * 64 * 100 + 64 * 4 + 64)
    assert found.write_bytes == 2 * (2 * 64 * 100)


def test_a_step_of_a_causal_one_reads_and_writes_its_state() -> None:
    attrs = ConvAttrs((1,), (0,), (1,), causal=True, has_state=True)
    step = OpCall("conv", attrs, (t(2, 64, 1), t(64, 1, 4), t(2, 64, 4)), (t(2, 64, 1), t(2, 64, 4)))
    assert work(step).write_bytes == 2 * (2 * 64 + 2 * 64 * 4)


def test_a_transposed_one_counts_by_its_input() -> None:
    found = work(call(t(2, 8, 10), t(8, 4, 3), t(2, 4, 12), ConvAttrs((1,), (0,), (1,), transposed=True)))
    assert found.tensor_flops == 2 * (2 * 8 * 10) * (4 * 3)


def test_backward_is_one_forward_for_each_gradient_that_is_asked() -> None:
    x, weight, y = PATCHES.inputs[0], PATCHES.inputs[1], PATCHES.outputs[0]
    forward = work(PATCHES).tensor_flops
    both = OpCall("conv_bwd", PATCHES.attrs, (y, x, weight), (x, weight, t(64)))
    assert work(both).tensor_flops == forward * 2
    assert work(both).vector_flops == 2 * 64 * 2 * 3
    alone = OpCall("conv_bwd", PATCHES.attrs, (y, x, weight), (weight, t(64)))
    assert work(alone).tensor_flops == forward


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (call(t(2, 3, 28, 42), t(64, 3, 14, 14), t(2, 64, 2, 4), ConvAttrs((14, 14), (0, 0), (1, 1))), "4 positions"),
        (call(t(2, 3, 28), t(64, 3, 5), t(2, 63, 24), ConvAttrs((1,), (0,), (1,))), "rows of the weight"),
        (call(t(2, 3, 28), t(64, 2, 5), t(2, 64, 24), ConvAttrs((1,), (0,), (1,))), "groups of 2"),
        (call(t(2, 3, 28), t(64, 3, 5, 5), t(2, 64, 24), ConvAttrs((1,), (0,), (1,))), "positions.."),
        (
            OpCall("conv", CAUSAL, (t(2, 64, 9), t(64, 1, 4)), (t(2, 64, 9), t(2, 64, 4))),
            "a state is read and made by a causal convolution",
        ),
    ],
)
def test_wrong_types_are_named(wrong: OpCall, complaint: str) -> None:
    assert any(complaint in found for found in op_def("conv").complaints(wrong))
