"""The machine that is measured: what it is called, what it has, which versions run on it."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from ...frontend.record.dtypes import torch_dtype
from ...ir.errors import UsageError
from ...ir.host.children import output_of
from ...ir.records import dataclass
from ...ir.types import DType

# glibc's mallopt: memory that was freed is kept for the next tensor, as allocators of accelerators do.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_QUICK_TURNS = 8
# Grids are rows of four or six: every fifth of their sizes has each row and each column in turn.
_EVERY = 5
_RANDOM = 2**20  # numbers drawn at most, for the drawing takes longer than what is measured

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Device:
    """Where probes run: `cpu` or `cuda`, on how many threads of the host, and how many operands take turns at most."""

    kind: str
    threads: int
    most_turns: int = 256

    @property
    def is_cuda(self) -> bool:
        """Whether it is an NVIDIA (or ROCm) accelerator."""
        return self.kind == "cuda"

    def sizes(self, quick: bool, few: Sequence[T], full: Sequence[T], large: Sequence[T]) -> Sequence[T]:
        """Return the sizes to measure: few or all of those that keep a core busy, every fifth or all of a GPU's.

        A GPU is idle on what a core takes its time for: it would be judged by its launches alone.
        """
        if self.is_cuda:
            return large[::_EVERY] if quick and len(large) > _EVERY else large
        return few if quick else full

    def random(self, dtype: DType, *sizes: int) -> Tensor:
        """Return a tensor of normal numbers, since rates depend on them where power does; the same ones repeat."""
        numel = math.prod(sizes)
        some = torch.randn(min(numel, _RANDOM), device=self.kind, dtype=torch.float32).to(torch_dtype(dtype))
        return some.repeat(-(-numel // _RANDOM))[:numel].clone().view(sizes)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the machine says of itself.

    Attributes:
        name: the processor, as its maker calls it.
        num_sms: units that work at once: multiprocessors, or the threads used.
        clock_hz: the clock of a unit.
        cache_bytes: the last cache before the memory.
        memory_bytes: the memory.
        versions: of what ran.
        power_w: the limit that the power of the device is held to; None where it does not say.
    """

    name: str
    num_sms: int
    clock_hz: float
    cache_bytes: float
    memory_bytes: float
    versions: str
    power_w: float | None = None


def open_device(kind: str, threads: int, quick: bool = False) -> Device:
    """Make a device ready; UsageError where there is none of its kind.

    On a CPU the process keeps memory that it frees: else fresh pages of the system, at a few GB/s, outweigh most
    kernels, and how many there are depends on what was freed before.
    """
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError("no CUDA device is at hand: --device cpu measures the host instead")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if kind == "cpu":
        keep_memory()
    return Device(kind, threads, _QUICK_TURNS) if quick else Device(kind, threads)


def keep_memory() -> bool:
    """Tell glibc to keep what is freed; False where the C library is another."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, -1))
    return False


def facts_of(device: Device) -> Facts:
    """Ask the machine; UsageError where it does not say."""
    return _cuda_facts() if device.is_cuda else _cpu_facts(device.threads)


def _versions() -> str:
    return f"PyTorch {torch.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def _cuda_facts() -> Facts:
    found = torch.cuda.get_device_properties(0)
    # The C library has it in kHz; PyTorch's properties leave it out in some versions.
    clock_hz = float(getattr(found, "clock_rate", 0)) * 1e3 or 1.5e9
    versions = f"{_versions()}, CUDA {torch.version.cuda}"
    return Facts(
        found.name,
        found.multi_processor_count,
        clock_hz,
        float(found.L2_cache_size),
        float(found.total_memory),
        versions,
        power_limit_w(),
    )


def power_limit_w() -> float | None:
    """Ask the driver's own tool, which comes with it; PyTorch does not know the limit."""
    words = ["nvidia-smi", "--query-gpu=enforced.power.limit", "--format=csv,noheader,nounits", "--id=0"]
    with suppress(ValueError):
        return float((output_of(words, 10.0) or "").strip())
    return None


def _cpu_facts(threads: int) -> Facts:
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    clock_hz = float(_cpuinfo("cpu MHz") or 2000.0) * 1e6
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    # The largest cache that Linux knows of; 8 MiB where it does not say.
    sizes = [8 * 2**20] if sys.platform != "linux" else []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text(encoding="utf-8").strip()
        sizes.append(int(text[:-1]) * {"K": 2**10, "M": 2**20}[text[-1]] if text[-1:] in ("K", "M") else int(text))
    return Facts(
        f"{name} ({threads} threads)" if threads > 1 else f"{name} (1 thread)",
        threads,
        clock_hz,
        float(max(sizes, default=8 * 2**20)),
        memory,
        _versions(),
    )


def _cpuinfo(key: str) -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.partition(":")[0].strip() == key:
                return line.partition(":")[2].strip()
    return ""
