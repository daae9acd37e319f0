"""What a kernel is, by its name and the operator that launched it."""

from __future__ import annotations

import re
from enum import StrEnum


class KernelKind(StrEnum):
    """Classes of kernels, as people read a breakdown."""

    GEMM = "gemm"
    ATTENTION = "attention"
    NORM = "norm"
    COLLECTIVE = "collective"
    COPY = "copy"
    POINTWISE = "pointwise"


# The first that is found in the name of the operator or of the kernel says what it is: fused kernels of attention hold
# the word gemm, and kernels of norms the words of reductions.
_KINDS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (KernelKind.COLLECTIVE, r"nccl|rccl|c10d::|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|oneccl"),
        # What is appended to a cache is written, whatever attention reads it.
        (KernelKind.POINTWISE, r"reshape_and_cache|store_kv_?cache"),
        (KernelKind.ATTENTION, r"flash|fmha|attention|attn_fwd|attn_bwd|paged_att|sdpa"),
        (KernelKind.NORM, r"layer_?norm|rms_?norm|group_?norm|batch_?norm"),
        (
            KernelKind.GEMM,
            r"aten::(add)?(b|baddb)?mm\b|aten::_(scaled|grouped)_mm|gemm|cublas|cutlass|cijk|nvjet|xmma"
            r"|moe_forward|fused_moe|fused_experts",
        ),
    )
)
_MESSAGES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("all_to_all", r"all_?to_?all"),
        ("all_reduce", r"all_?reduce"),
        ("all_gather", r"all_?gather"),
        ("reduce_scatter", r"reduce_?scatter"),
        ("broadcast", r"broadcast"),
        ("send_recv", r"send|recv"),
    )
)


def kind_of(kernel: str, op: str, is_copy: bool) -> KernelKind:
    """Return the class of a kernel; what nothing tells apart is pointwise.

    >>> str(kind_of("sm90_xmma_gemm_bf16bf16_bf16f32", "aten::mm", False)), str(kind_of("ncclDevKernel_AllGather", "", False))
    ('gemm', 'collective')
    """  # noqa: E501
    if is_copy:
        return KernelKind.COPY
    return next((kind for kind, seen in _KINDS if seen.search(op) or seen.search(kernel)), KernelKind.POINTWISE)


def message_of(kernel: str, given: str) -> str:
    """Return what a collective does, by the name that the trace gives it or else by that of its kernel.

    >>> message_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", ""), message_of("ncclKernel_x", "_allgather_base")
    ('reduce_scatter', 'all_gather')
    """
    return next((name for name, seen in _MESSAGES if seen.search(given or kernel)), "other")
