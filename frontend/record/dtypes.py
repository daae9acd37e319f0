"""Element types of torch and ours: one table, read both ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...ir.errors import TraceError, UnknownNameError
from ...ir.types import DType

_DTYPES = {
    torch.float32: DType.FP32, torch.bfloat16: DType.BF16, torch.float16: DType.FP16, torch.float64: DType.FP64,
    torch.int64: DType.INT64, torch.int32: DType.INT32, torch.int16: DType.INT16, torch.int8: DType.INT8,
    torch.uint8: DType.UINT8, torch.bool: DType.BOOL, torch.float8_e4m3fn: DType.FP8, torch.float8_e5m2: DType.FP8,
    torch.complex64: DType.COMPLEX64,
}  # fmt: skip


def dtype_of(tensor: Tensor) -> DType:
    """Return the element type of a torch tensor; TraceError for one we do not know."""
    if tensor.dtype not in _DTYPES:
        raise TraceError(f"tensors of type {tensor.dtype} are not understood; known: {sorted(map(str, _DTYPES))}")
    return _DTYPES[tensor.dtype]


def known_dtype(dtype: torch.dtype) -> DType | None:
    """Return the element type of a torch type; None for one that we do not know."""
    return _DTYPES.get(dtype)


def torch_type(dtype: DType) -> torch.dtype:
    """Return the torch type of an element type that tensors can be handed over in."""
    known = {ours: theirs for theirs, ours in reversed(_DTYPES.items())}
    if dtype not in known:
        raise UnknownNameError.of("type of an input", dtype, known)
    return known[dtype]


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return the torch type that models are built in; computing types only."""
    known = {DType.BF16: torch.bfloat16, DType.FP16: torch.float16, DType.FP32: torch.float32}
    if dtype not in known:
        raise TraceError(f"models are built in {', '.join(known)}, not in {dtype}")
    return known[dtype]


def seen_as(module: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """`self.gate.to(torch.float32)` in a forward pass: its parameters stay, and what is made of them is read."""
    for part in module.modules() if recurse else (module,):
        for name, param in part._parameters.items():
            if param is not None:
                vars(part)[name] = change(param)
        for name, buffer in part._buffers.items():
            part._buffers[name] = buffer if buffer is None else change(buffer)
    return module


__all__ = ["dtype_of", "known_dtype", "seen_as", "torch_dtype", "torch_type"]
