"""Matrix products: letters to GEMM dims, FLOPs and bytes counted by hand, wrong calls named."""

import pytest

from slipstick.ir.ops import OPS, op_def
from slipstick.ir.ops.base import OpCall, Work
from slipstick.ir.ops.fused.experts import GroupedAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs, gemm_shape, letter_sizes
from slipstick.ir.sizes.expr import Dim, as_expr, symbol
from slipstick.ir.types import DType, TensorType

B, S, TP = symbol("batch"), symbol("seq"), symbol("tp")


def t(*dims: Dim, dtype: str = "bf16") -> TensorType:
    return TensorType(dims, DType(dtype))


def matmul(spec: str, out: TensorType, *inputs: TensorType) -> OpCall:
    return OpCall("matmul", MatmulAttrs(spec), inputs, (out,))


def work(call: OpCall) -> Work:
    assert list(op_def(call.op).complaints(call)) == []
    return op_def(call.op).work(call)


@pytest.mark.parametrize(
    ("call", "shape", "flops", "read_bytes", "write_bytes"),
    [
        # [2, 3] x [5, 3]^T: 2 * 2 * 5 * 3 FLOPs; 6 + 15 elements read, 10 written, 2 bytes each.
        (matmul("mk,nk->mn", t(2, 5), t(2, 3), t(5, 3)), (1, 2, 5, 3), 60, 42, 20),
        # A bias of 5 elements is read as well and adds no GEMM FLOPs.
        (matmul("mk,nk->mn", t(2, 5), t(2, 3), t(5, 3), t(5)), (1, 2, 5, 3), 60, 52, 20),
        # Leading letters of the left operand belong to m: 2 * (2*7) * 5 * 3.
        (matmul("abk,nk->abn", t(2, 7, 5), t(2, 7, 3), t(5, 3)), (1, 14, 5, 3), 420, 114, 140),
        # A weight gradient sums over both leading letters: m = 5, n = 3, k = 14.
        (matmul("abn,abk->nk", t(5, 3), t(2, 7, 5), t(2, 7, 3)), (1, 5, 3, 14), 420, 224, 30),
        # Batch letters stand in all three: 4 products of 2 * 2 * 5 * 3.
        (matmul("bmk,bkn->bmn", t(4, 2, 5), t(4, 2, 3), t(4, 3, 5)), (4, 2, 5, 3), 240, 168, 80),
        # Outer product: no letter is summed, k = 1.
        (matmul("m,n->mn", t(3, 4), t(3), t(4)), (1, 3, 4, 1), 24, 14, 24),
        # The result may have the letters in any order.
        (matmul("mk,kn->nm", t(5, 2), t(2, 3), t(3, 5)), (1, 2, 5, 3), 60, 42, 20),
    ],
)
def test_work(call: OpCall, shape: tuple[object, ...], flops: int, read_bytes: int, write_bytes: int) -> None:
    found = work(call)
    (gemm,) = found.gemms
    assert (gemm.batch, gemm.m, gemm.n, gemm.k, gemm.groups) == (*shape, 1)
    assert found.tensor_flops == flops
    assert found.vector_flops == 0
    assert found.read_bytes == read_bytes
    assert found.write_bytes == write_bytes
    assert found.num_bytes == read_bytes + write_bytes


def test_a_sharded_linear_layer() -> None:
    # Column parallel 4096 -> 14336/tp: 2 * (batch*seq) * (14336/tp) * 4096 FLOPs.
    width = as_expr(14336) / TP
    call = matmul("abk,nk->abn", t(B, S, width), t(B, S, 4096), t(width, 4096))
    assert work(call).tensor_flops == B * S * (2 * 14336 * 4096) / TP


def test_letters_have_sizes() -> None:
    call = matmul("bmk,bkn->bmn", t(4, 2, 5), t(4, 2, 3), t(4, 3, 5))
    assert letter_sizes(call) == {"b": 4, "m": 2, "k": 3, "n": 5}
    assert gemm_shape(call).m == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (matmul("mk,nk", t(2, 5), t(2, 3), t(5, 3)), "spec 'mk,nk' is not 'left,right->result' in letters"),
        (matmul("mk,nk->mn", t(2, 5), t(2, 3), t(5, 3, 1)), "spec mk,nk->mn wants ranks (2, 2, 2), has (2, 3, 2)"),
        (matmul("mk,nk->mn", t(2, 5), t(2, 3), t(5, 4)), "letter k is 3 on the left and 4 on the right"),
        (matmul("mk,nk->mn", t(2, 6), t(2, 3), t(5, 3)), "letter n is 5 in the operands and 6 in the result"),
        (matmul("mk,nk->mx", t(2, 5), t(2, 3), t(5, 3)), "spec mk,nk->mx: letter n is in one place only"),
        (matmul("mk,nk->mn", t(2, 5), t(2, 3)), "takes 2 to 6 inputs, has 1"),
        (OpCall("matmul", GroupedAttrs(), (t(2, 3), t(5, 3)), (t(2, 5),)), "needs MatmulAttrs, has GroupedAttrs"),
        (OpCall("matmul", MatmulAttrs("mk,nk->mn"), (t(2, 3), t(5, 3)), ()), "makes 1 outputs, has 0"),
    ],
)
def test_a_wrong_call_is_named(call: OpCall, message: str) -> None:
    assert message in list(OPS["matmul"].complaints(call))


def test_a_symbolic_mismatch_is_named() -> None:
    call = matmul("mk,nk->mn", t(S, 5), t(S, B), t(5, B * 2))
    assert list(OPS["matmul"].complaints(call)) == ["letter k is batch on the left and 2*batch on the right"]


def test_scales_of_a_low_operand_are_read_beside_it() -> None:
    """[2, 64] halves by [3, 64] in int4: half a byte an element, two scales of two bytes a row, a bias of three."""
    low, scales = TensorType((3, 64), DType.INT4), TensorType((3, 2), DType.FP16)
    half = (TensorType((2, 64), DType.FP16), low, TensorType((3,), DType.FP16), scales)
    call = OpCall("matmul", MatmulAttrs("mk,nk->mn", 1), half, (TensorType((2, 3), DType.FP16),))
    assert list(op_def("matmul").complaints(call)) == []
    assert op_def("matmul").work(call).read_bytes == 2 * 64 * 2 + 3 * 64 // 2 + 3 * 2 + 3 * 2 * 2
    more = OpCall("matmul", MatmulAttrs("mk,nk->mn", 3), half, call.outputs)
    assert list(op_def("matmul").complaints(more)) == [
        "takes a left operand, a right one, a bias or none and 3 scales, has 4 inputs"
    ]
