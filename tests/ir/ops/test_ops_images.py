"""Windows and norms over channels: work by hand, and letters that must fit."""

from __future__ import annotations

from slipstick.ir.graph import Attrs
from slipstick.ir.ops import OpCall, Work, op_def
from slipstick.ir.ops.base import OpClass
from slipstick.ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from slipstick.ir.types import DType, TensorType

N, C, H, W = 2, 12, 8, 6
X, Y = (N, C, H, W), (N, C, H // 2, W // 2)
SIZE, QUARTER = N * C * H * W, N * C * H * W // 4
ELEMENT = 2  # bytes, bf16


def t(dims: tuple[int, ...], dtype: DType = DType.BF16) -> TensorType:
    return TensorType(dims, dtype)


def call(op: str, attrs: Attrs, given: list[TensorType], made: list[TensorType]) -> OpCall:
    return OpCall(op, attrs, tuple(given), tuple(made))


def work(c: OpCall) -> Work:
    assert list(op_def(c.op).complaints(c)) == []
    return op_def(c.op).work(c)


def complaints(c: OpCall) -> str:
    return "; ".join(op_def(c.op).complaints(c))


def test_a_pool_reads_x_once_and_takes_a_flop_a_tap() -> None:
    """Results and their places, in int64, are written; windows of 2 x 2."""
    pool = call("window", WindowAttrs("max", "abcd->abef,abef", 4), [t(X)], [t(Y), t(Y, DType.INT64)])
    found = work(pool)
    assert found.vector_flops == QUARTER * 4
    assert found.read_bytes == SIZE * ELEMENT
    assert found.write_bytes == QUARTER * (ELEMENT + 8)
    assert found.tensor_flops == 0


def test_the_way_back_does_not_read_what_is_held() -> None:
    """PyTorch keeps x for the backward of a pool, whose kernel reads the gradient and the places alone."""
    attrs = WindowAttrs("max", "abcd,abcd,abef->abgh", 1, held=1)
    back = call("window_bwd", attrs, [t(Y), t(Y, DType.INT64), t(X)], [t(X)])
    found = work(back)
    assert found.vector_flops == QUARTER
    assert found.read_bytes == QUARTER * (ELEMENT + 8)
    assert found.write_bytes == SIZE * ELEMENT


def test_a_batch_norm_reads_x_twice() -> None:
    """Statistics first, in fp32 one a channel, then the result of x, weight and bias; 7 FLOPs an element."""
    attrs = ChannelNormAttrs("batch", "abcd,b,b->abcd,b,b")
    norm = call("channel_norm", attrs, [t(X), t((C,)), t((C,))], [t(X), *[t((C,), DType.FP32)] * 2])
    found = work(norm)
    assert found.vector_flops == SIZE * 7
    assert found.read_bytes == 2 * SIZE * ELEMENT + 2 * C * ELEMENT
    assert found.write_bytes == SIZE * ELEMENT + 2 * C * 4
    assert op_def("channel_norm").kind is OpClass.NORM


def test_with_running_statistics_it_is_one_pass() -> None:
    """A multiply and an add of numbers of the channel: weight, bias, mean and variance."""
    attrs = ChannelNormAttrs("batch", "abcd,b,b,b,b->abcd", given=True)
    found = work(call("channel_norm", attrs, [t(X), *[t((C,))] * 4], [t(X)]))
    assert found.vector_flops == SIZE * 2
    assert found.read_bytes == SIZE * ELEMENT + 4 * C * ELEMENT
    assert found.write_bytes == SIZE * ELEMENT


def test_its_way_back_reads_gradient_and_x_twice() -> None:
    """Once for the sums that are the gradients of weight and bias, once with these for that of x; 14 FLOPs each."""
    attrs = ChannelNormAttrs("batch", "abcd,abcd,b,b,b->abcd,b,b")
    channel = t((C,))
    found = work(call("channel_norm_bwd", attrs, [t(X), t(X), channel, channel, channel], [t(X), channel, channel]))
    assert found.vector_flops == SIZE * 14
    assert found.read_bytes == 4 * SIZE * ELEMENT + 3 * C * ELEMENT
    assert found.write_bytes == SIZE * ELEMENT + 2 * C * ELEMENT


def test_without_the_gradient_of_x_one_pass_is_enough() -> None:
    attrs = ChannelNormAttrs("batch", "abcd,abcd,b,b,b->b,b")
    channel = t((C,))
    found = work(call("channel_norm_bwd", attrs, [t(X), t(X), channel, channel, channel], [channel, channel]))
    assert found.read_bytes == 2 * SIZE * ELEMENT + 3 * C * ELEMENT
    assert found.vector_flops == SIZE * 7


def test_letters_must_fit() -> None:
    assert "wants ranks" in complaints(call("window", WindowAttrs("avg", "abc->abd"), [t(X)], [t(Y)]))
    assert "letter c is 8 and 4" in complaints(call("window", WindowAttrs("avg", "abcd->abcd"), [t(X)], [t(Y)]))
    assert "not letters for 1 inputs" in complaints(call("window", WindowAttrs("avg", "ab,cd->abcd"), [t(X)], [t(Y)]))
    assert "1 of 1 inputs are held" in complaints(
        call("window", WindowAttrs("avg", "abcd->abef", 0, 1), [t(X)], [t(Y)])
    )


def test_kinds_of_norms_are_known() -> None:
    attrs = ChannelNormAttrs("layer", "abcd->abcd")
    assert complaints(call("channel_norm", attrs, [t(X)], [t(X)])) == "kind 'layer' is none of batch, group"
