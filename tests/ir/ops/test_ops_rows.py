"""Norms, reductions, loss, pointwise ops and the optimizer: work counted by hand, wrong calls named."""

import pytest

from slipstick.ir.graph import NO_ATTRS
from slipstick.ir.ops import op_def
from slipstick.ir.ops.base import OpCall, Work
from slipstick.ir.ops.optimizer import OptimizerAttrs
from slipstick.ir.ops.quantise import QuantiseAttrs
from slipstick.ir.ops.tensors.normalize import DimAttrs, NormAttrs, ReduceAttrs
from slipstick.ir.ops.tensors.pointwise import AccumulateAttrs, ElementwiseAttrs, FillAttrs, broadcast
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType

B, S = symbol("batch"), symbol("seq")


def t(*dims: Dim, dtype: str = "bf16") -> TensorType:
    return TensorType(dims, DType(dtype))


X, STATS, WEIGHT = t(3, 8), t(3, dtype="fp32"), t(8)  # 24 elements, 48 bytes; 12 bytes; 16 bytes
LOGITS, TARGETS, LOSS, TRIPLES = t(3, 16), t(3, dtype="int64"), t(dtype="fp32"), t(3, 3, dtype="fp32")
SUM = ReduceAttrs("sum", (0,))


def call(op: str, attrs: object, inputs: tuple[TensorType, ...], *outputs: TensorType) -> OpCall:
    assert isinstance(attrs, type(NO_ATTRS))
    return OpCall(op, attrs, inputs, outputs)


@pytest.mark.parametrize(
    ("made", "vector_flops", "read_bytes", "write_bytes"),
    [
        # Square, add, scale, weigh: 4 an element; layer norm subtracts the mean and adds a bias: 7.
        (call("norm", NormAttrs("rms"), (X, WEIGHT), X, STATS), 24 * 4, 48 + 16, 48 + 12),
        (call("norm", NormAttrs("layer"), (X, WEIGHT, WEIGHT), X, STATS, STATS), 24 * 7, 48 + 32, 48 + 24),
        (call("norm_bwd", NormAttrs("rms"), (X, X, STATS, WEIGHT), X, WEIGHT), 24 * 8, 96 + 12 + 16, 48 + 16),
        (call("norm_bwd", NormAttrs("layer"), (X, X, STATS, STATS, WEIGHT), X, WEIGHT, WEIGHT), 24 * 14,
         96 + 24 + 16, 48 + 32),
        (call("softmax", DimAttrs(1), (X,), X), 24 * 5, 48, 48),
        (call("softmax_bwd", DimAttrs(1), (X, X), X), 24 * 4, 96, 48),
        (call("reduce", SUM, (X,), t(8)), 24, 48, 16),
        (call("reduce", ReduceAttrs("mean", (1,), keepdim=True), (X,), t(3, 1)), 24, 48, 6),
        (call("cumsum", DimAttrs(0), (X,), X), 24, 48, 48),
        (call("topk", DimAttrs(1), (X,), t(3, 2), t(3, 2, dtype="int64")), 24 * 5, 48, 12 + 48),
        (call("sort", DimAttrs(1), (X,), X, t(3, 8, dtype="int64")), 24 * 5, 48, 48 + 192),
        # One pass over 48 logits of 2 bytes and 3 targets; loss and three fp32 numbers a row are written.
        (call("cross_entropy", NO_ATTRS, (LOGITS, TARGETS), LOSS, TRIPLES), 48 * 6, 96 + 24, 4 + 36),
        (call("cross_entropy_bwd", NO_ATTRS, (LOSS, LOGITS, TARGETS, TRIPLES), LOGITS), 48 * 2, 4 + 96 + 24 + 36, 96),
        # A fused chain reads and writes once: silu 10 and mul 1 an element.
        (call("elementwise", ElementwiseAttrs(("silu", "mul")), (X, X), X), 24 * 11, 96, 48),
        (call("elementwise", ElementwiseAttrs(("add",)), (X, WEIGHT), X), 24, 48 + 16, 48),
        (call("cast", NO_ATTRS, (X,), t(3, 8, dtype="fp32")), 0, 48, 96),
        (call("rope", NO_ATTRS, (X, X, X), X), 24 * 3, 144, 48),
        (call("rope_bwd", NO_ATTRS, (X, X, X), X), 24 * 3, 144, 48),
        (call("fill", FillAttrs("zeros"), (), X), 0, 0, 48),
        (call("fill", FillAttrs("empty"), (), X), 0, 0, 0),
        (call("identity", NO_ATTRS, (X,), X), 0, 0, 0),
        # The running sum in fp32 is read and written, the gradient read.
        (call("accumulate", AccumulateAttrs(), (X,), t(3, 8, dtype="fp32")), 24, 48 + 96, 96),
        # Added by the product itself: the sum read, and written in place of the gradient.
        (call("accumulate", AccumulateAttrs(True), (X,), t(3, 8, dtype="fp32")), 24, 96, 96 - 48),
        # Adam, mixed precision: 14 FLOPs; reads gradient (2) + master, m, v (12); writes weight (2) + 12.
        (call("optimizer_step", OptimizerAttrs(), (X, WEIGHT, X, WEIGHT), X, WEIGHT), 32 * 14, 32 * 14, 32 * 14),
        (call("optimizer_step", OptimizerAttrs(), (X, t(3, 8, dtype="fp32")), X), 24 * 14, 24 * 16, 24 * 14),
    ],
)  # fmt: skip
def test_work(made: OpCall, vector_flops: int, read_bytes: int, write_bytes: int) -> None:
    assert list(op_def(made.op).complaints(made)) == []
    found: Work = op_def(made.op).work(made)
    assert found.tensor_flops == 0
    assert found.vector_flops == vector_flops
    assert found.read_bytes == read_bytes
    assert found.write_bytes == write_bytes


def test_symbolic_rows() -> None:
    x = t(B, S, 4096)
    found = op_def("norm").work(call("norm", NormAttrs("rms"), (x, t(4096)), x, t(B, S, dtype="fp32")))
    assert found.vector_flops == B * S * 4 * 4096
    assert found.read_bytes == B * S * 8192 + 8192
    assert found.write_bytes == B * S * (8192 + 4)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (call("norm", NormAttrs("rms"), (X, WEIGHT), t(3, 9), STATS), "result: [3, 9] is not [3, 8]"),
        (call("norm", NormAttrs("rms"), (), X), "takes 1 to 3 inputs, has 0"),
        (call("norm_bwd", NormAttrs("rms"), (X, X), X), "takes 3 to 6 inputs, has 2"),
        (call("norm_bwd", NormAttrs("rms"), (X, X, STATS), t(8)), "result: [8] is not [3, 8]"),
        (call("softmax", DimAttrs(1), (X,), t(3)), "result: [3] is not [3, 8]"),
        (call("softmax", NO_ATTRS, (X,), X), "needs DimAttrs, has Attrs"),
        (call("softmax_bwd", DimAttrs(1), (X,), X), "takes 2 inputs, has 1"),
        (call("reduce", SUM, (X,), t(3)), "sum over dims (0,) of bf16[3, 8]: [3] is not [8]"),
        (call("reduce", ReduceAttrs("max", (2,)), (X,), X), "dims (2,) are not all dims of bf16[3, 8]"),
        (call("cumsum", DimAttrs(0), (X,), t(8)), "result: [8] is not [3, 8]"),
        (call("topk", DimAttrs(0), (X,), X), "makes 2 outputs, has 1"),
        (call("sort", DimAttrs(0), (X,), X), "makes 2 outputs, has 1"),
        (call("cross_entropy", NO_ATTRS, (LOGITS, t(4)), LOSS, TRIPLES), "targets: [4] is not [3]"),
        (call("cross_entropy", NO_ATTRS, (LOGITS, TARGETS), LOSS, t(3, 2)), "statistics: [3, 2] is not [3, 3]"),
        (call("cross_entropy_bwd", NO_ATTRS, (LOSS, LOGITS, TARGETS, TRIPLES), X),
         "gradient of the logits: [3, 8] is not [3, 16]"),
        (call("elementwise", ElementwiseAttrs(("add",)), (X, t(3)), X),
         "operands bf16[3, 8], bf16[3] do not broadcast"),
        (call("elementwise", ElementwiseAttrs(("add",)), (X, X), t(8)),
         "result bf16[8] does not hold the operands bf16[3, 8], bf16[3, 8]"),
        (call("elementwise", ElementwiseAttrs(("add",)), (), X), "takes at least 1 inputs, has 0"),
        (call("cast", NO_ATTRS, (X,), t(8)), "result: [8] is not [3, 8]"),
        (call("rope", NO_ATTRS, (X,), X), "takes 3 inputs, has 1"),
        (call("rope_bwd", NO_ATTRS, (X, X, X), t(8)), "result: [8] is not [3, 8]"),
        (call("fill", NO_ATTRS, (), X), "needs FillAttrs, has Attrs"),
        (call("identity", NO_ATTRS, (X,), t(8)), "result: [8] is not [3, 8]"),
        (call("accumulate", AccumulateAttrs(), (X,), t(8)), "result: [8] is not [3, 8]"),
        (call("optimizer_step", OptimizerAttrs(), (X, WEIGHT, X), X),
         "takes as many gradients as parameters, has 3 inputs"),
        (call("optimizer_step", OptimizerAttrs(), (X, WEIGHT), X), "gradient and parameter: [8] is not [3, 8]"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_named(made: OpCall, message: str) -> None:
    assert message in list(op_def(made.op).complaints(made))


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        ((), (2, 3), (2, 3)),
        ((B, 1), (S,), (B, S)),
        ((1,), (B, 1), (B, 1)),
        ((2,), (3,), None),
        ((B,), (S,), None),
    ],
)
def test_broadcast(a: tuple[Dim, ...], b: tuple[Dim, ...], joined: tuple[Dim, ...] | None) -> None:
    assert broadcast(a, b) == joined
    assert broadcast(b, a) == joined


def test_a_tensor_is_quantised_in_one_to_three_passes_to_copies_of_its_size() -> None:
    def said(reads: int, out: TensorType) -> list[str]:
        return list(op_def("quantise").complaints(call("quantise", QuantiseAttrs(reads), (X,), out)))

    assert [said(reads, X) for reads in (1, 2, 3)] == [[], [], []]
    assert [said(reads, X) for reads in (0, 4)] == [["reads is 0, not 1 to 3"], ["reads is 4, not 1 to 3"]]
    (wrong,) = said(1, t(3, 9))
    assert wrong.startswith("copy and tensor")
