"""FLOPs of scans and convolutions against torch's own counter on what transformers and torch run without kernels."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils.flop_counter import FlopCounterMode

from slipstick.ir.ops import OpCall, op_def
from slipstick.ir.ops.fused.scan import ScanAttrs
from slipstick.ir.ops.tensors.conv import ConvAttrs
from slipstick.ir.types import DType, TensorType

mamba2 = pytest.importorskip("transformers.models.mamba2.modeling_mamba2", reason="the model; install slipstick[hf]")

pytestmark = pytest.mark.oracle

B, L, H, P, N, C = 2, 512, 4, 16, 32, 64


def fp32(*dims: int) -> TensorType:
    return TensorType(dims, DType.FP32)


def meta(*dims: int) -> torch.Tensor:
    return torch.empty(dims, device="meta")


def flops(op: str, call: OpCall) -> float:
    return float(op_def(op).work(call).tensor_flops.evaluate({}))


def test_the_chunks_of_mamba_2_are_those_of_the_fallback() -> None:
    """The fallback repeats q and k to all heads, and mixes states of chunks by a product of its own.

    We count the fused kernels, which pass states on from chunk to chunk: z x z products of [p, n] less, z = L/c + 1.
    """
    with FlopCounterMode(display=False) as counter:
        mamba2.mamba2_chunk_scan(meta(B, L, H, P), meta(B, L, H), meta(H), meta(B, L, H, N), meta(B, L, H, N), C)
    chunks = L // C + 1
    mixed = 2 * B * H * chunks * chunks * P * N
    v, qk, state = fp32(B, L, H, P), fp32(B, L, H, N), fp32(B, H, N, P)
    ours = flops("scan", OpCall("scan", ScanAttrs("ssd", C), (v, qk, qk, fp32(B, L, H), fp32(H)), (v, state)))
    assert ours == counter.get_total_flops() - mixed


@pytest.mark.parametrize(("groups", "stride"), [(1, 1), (1, 4), (2, 1)])
def test_convolutions_are_those_of_the_counter(groups: int, stride: int) -> None:
    """Backward without groups only: torch counts the gradient of the input as if all channels met."""
    x, weight = meta(3, 8, 64).requires_grad_(), meta(16, 8 // groups, 4).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        y = F.conv1d(x, weight, stride=stride, groups=groups)
        forward = counter.get_total_flops()
        torch.autograd.grad(y.sum(), (x, weight))
    attrs = ConvAttrs((stride,), (0,), (1,))
    types = [fp32(*t.shape) for t in (x, weight, y)]
    assert flops("conv", OpCall("conv", attrs, (types[0], types[1]), (types[2],))) == forward
    backward = OpCall("conv_bwd", attrs, (types[2], types[0], types[1]), (types[0], types[1]))
    assert flops("conv_bwd", backward) == (counter.get_total_flops() - forward if groups == 1 else 2 * forward)
