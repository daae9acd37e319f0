"""What stands in a data sheet, measured where there is none: peaks, bandwidths, the time of an empty op."""

from __future__ import annotations

import torch

from ...frontend.record.dtypes import torch_dtype
from ...ir.records import dataclass
from ...ir.types import DType
from .device import Device
from .kernels.probe import Call
from .stopwatch import Effort, median_s

_SIDE, _SIDE_CUDA = 1536, 8192
# Of a peak, the part that a large product reaches: 0.92 of 3.65 GHz x 32 FLOP on a core of an AMD EPYC 9004 under MKL,
# about as much on GPUs where power does not limit it.
_REACHED = 0.9
_BYTES, _BYTES_QUICK = 256 * 2**20, 64 * 2**20
DTYPES = (DType.FP32, DType.BF16, DType.FP16)


@dataclass(frozen=True, slots=True)
class Silicon:
    """Rates that a machine reaches.

    Attributes:
        flop_per_s: peaks by dtype of the operands: what a large square product reaches, and a tenth more.
        memory_bytes_per_s: of a copy or a sum far beyond the caches, whichever is faster, bytes read and bytes written.
        dispatch_s: of an op on one element.
    """

    flop_per_s: dict[DType, float]
    memory_bytes_per_s: float
    dispatch_s: float


def measure_silicon(device: Device, effort: Effort) -> Silicon:
    """Measure each rate, the best of some rounds."""
    peaks = {dtype: _peak(device, dtype, effort) for dtype in DTYPES}
    x = torch.ones(1, device=device.kind)
    return Silicon(peaks, _bandwidth(device, effort), _best(lambda: torch.neg(x), device, effort))


def _best(call: Call, device: Device, effort: Effort) -> float:
    return min(median_s(call, effort, device) for _ in range(effort.num_rounds))


def _peak(device: Device, dtype: DType, effort: Effort) -> float:
    """Of formats that no unit computes, a small product tells as much in less time."""
    side = _SIDE_CUDA if device.is_cuda else 512 if effort.quick or dtype is not DType.FP32 else _SIDE
    a, b = device.random(dtype, side, side), device.random(dtype, side, side)
    return 2.0 * side**3 / _best(lambda: torch.mm(a, b), device, effort) / _REACHED


def _bandwidth(device: Device, effort: Effort) -> float:
    size = _BYTES_QUICK if effort.quick else _BYTES
    source = torch.ones(size // 4, device=device.kind, dtype=torch_dtype(DType.FP32))
    target = torch.zeros_like(source)
    copied = 2.0 * size / _best(lambda: target.copy_(source), device, effort)
    # A cache reads what it is about to write, and no sum counts that.
    return max(copied, 3.0 * size / _best(lambda: target.add_(source), device, effort))
