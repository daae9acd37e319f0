"""Times calls with `torch.utils.benchmark`: medians of warm repetitions, the least over several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch.utils.benchmark import Timer

from ...ir.records import dataclass
from .device import Device
from .kernels.probe import Call, MeasuredProbe, Probe

# Hears of progress, a line each.
Tell: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        num_rounds: times that all probes are gone through; what disturbs a machine seldom stays for all of them.
        least_s: how long a call is repeated in a round.
        quick: whether sweeps take few sizes.
    """

    num_rounds: int = 3
    least_s: float = 0.05
    quick: bool = False


QUICK = Effort(num_rounds=1, least_s=0.01, quick=True)


def clock_of(device: Device) -> Callable[[], float]:
    """Return the clock of a device: wall time once it is done; of one thread of a CPU, what the process had of it.

    So others on a shared machine cost no more than what they take of caches and memory.
    """
    if device.is_cuda:
        return _after_cuda
    return time.process_time if device.threads == 1 else time.perf_counter


def _after_cuda() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def median_s(call: Call, effort: Effort, device: Device) -> float:
    """Return the median time of a call, warm, in seconds."""
    timer = Timer("call()", timer=clock_of(device), globals={"call": call}, num_threads=device.threads)
    return float(timer.blocked_autorange(min_run_time=effort.least_s).median)


def measure(probes: Sequence[Probe], effort: Effort, device: Device, tell: Tell) -> tuple[MeasuredProbe, ...]:
    """Time all probes, in rounds; `tell` hears of the progress."""
    times: list[list[float]] = [[] for _ in probes]
    for turn in range(effort.num_rounds):
        for i, (probe, seen) in enumerate(zip(probes, times, strict=True)):
            if i % 25 == 0:
                tell(f"{probe.table}: round {turn + 1} of {effort.num_rounds}, {i} of {len(probes)}")
            seen.append(median_s(probe.prepare(), effort, device))
    return tuple(
        MeasuredProbe(p, min(seen), max(seen) / min(seen) - 1.0) for p, seen in zip(probes, times, strict=True)
    )
