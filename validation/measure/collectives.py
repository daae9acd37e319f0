"""Collectives over the ranks that run this program: started by `torchrun`, on gloo or NCCL."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from types import MappingProxyType

import torch
import torch.distributed as dist
from torch import Tensor

from ...ir.records import dataclass
from .device import Device
from .kernels.probe import Call, MeasuredProbe, Probe
from .stopwatch import Effort, Tell

FULL = tuple(2**power for power in range(10, 29, 2))
QUICK = (2**12, 2**18)
_SAMPLES = 11  # the same on every rank, or they would wait for one another for ever


def num_ranks() -> int:
    """Return how many ranks `torchrun` started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this rank writes the files."""
    return os.environ.get("RANK", "0") == "0"


def join_ranks(device: Device) -> None:
    """Meet the other ranks, each with its own accelerator."""
    if device.is_cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if device.is_cuda else "gloo")


def leave_ranks() -> None:
    """Part from the other ranks."""
    dist.destroy_process_group()


def _all_reduce(device: Device, numel: int) -> Call:
    x = torch.ones(numel, device=device.kind)
    return lambda: dist.all_reduce(x)


def _all_gather(device: Device, numel: int) -> Call:
    whole = torch.ones(numel, device=device.kind)
    part = torch.ones(numel // num_ranks(), device=device.kind)
    return lambda: dist.all_gather_into_tensor(whole, part)


def _reduce_scatter(device: Device, numel: int) -> Call:
    whole = torch.ones(numel, device=device.kind)
    part = torch.ones(numel // num_ranks(), device=device.kind)
    return lambda: dist.reduce_scatter_tensor(part, whole)


def _all_to_all(device: Device, numel: int) -> Call:
    source = torch.ones(numel, device=device.kind)
    target = torch.empty_like(source)
    return lambda: dist.all_to_all_single(target, source)


def _send_recv(device: Device, numel: int) -> Call:
    x = torch.ones(numel, device=device.kind)
    return lambda: _pass_on(x)


def _pass_on(x: Tensor) -> None:
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)


_MAKERS: Mapping[str, Callable[[Device, int], Call]] = MappingProxyType(
    {
        "all_reduce": _all_reduce,
        "all_gather": _all_gather,
        "reduce_scatter": _reduce_scatter,
        "alltoall": _all_to_all,
        "send_recv": _send_recv,
    }
)


def collective_probes(device: Device, quick: bool) -> Iterator[Probe]:
    """Yield each collective over a range of sizes, in whole buffers as nccl-tests counts them."""
    for name, maker in _MAKERS.items():
        for size in QUICK if quick else FULL:
            yield _probe(device, name, maker, size)


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """What one rank sends another: bytes per second of large messages, the time of a small one."""

    bytes_per_s: float
    latency_s: float


def link_of(measured: Sequence[MeasuredProbe]) -> MeasuredLink | None:
    """Return the link that messages between two ranks show; None where there are none."""
    sent = [(float(m.probe.cells["size_bytes"]), m.time_s) for m in measured if m.probe.name.startswith("send_recv")]
    if not sent:
        return None
    return MeasuredLink(max(size / time_s for size, time_s in sent), min(time_s for _, time_s in sent))


def measure_collectives(device: Device, effort: Effort, tell: Tell) -> tuple[MeasuredProbe, ...]:
    """Time all collectives, as often on every rank: medians of wall times, the least of the rounds."""
    probes = tuple(collective_probes(device, effort.quick))
    times: list[list[float]] = [[] for _ in probes]
    for turn in range(effort.num_rounds):
        tell(f"collectives of {num_ranks()} ranks: round {turn + 1} of {effort.num_rounds}")
        for probe, seen in zip(probes, times, strict=True):
            seen.append(_median_s(probe.prepare(), device))
    return tuple(
        MeasuredProbe(p, min(seen), max(seen) / min(seen) - 1.0) for p, seen in zip(probes, times, strict=True)
    )


def _median_s(call: Call, device: Device) -> float:
    call()
    samples = []
    for _ in range(_SAMPLES):
        dist.barrier()
        start = _now_s(device)
        call()
        samples.append(_now_s(device) - start)
    return median(samples)


def _now_s(device: Device) -> float:
    if device.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def _probe(device: Device, name: str, maker: Callable[[Device, int], Call], size: int) -> Probe:
    ranks = num_ranks()
    numel = size // 4 // ranks * ranks
    cells: dict[str, str | int | float] = {
        "collective": name,
        "n_gpus": ranks,
        "n_nodes": 1,
        "gpus_per_node_used": ranks,
        "size_bytes": 4 * numel,
        "size_convention": "total buffer bytes",
        "library": dist.get_backend(),
        "interconnect": "host",
    }
    return Probe("collectives", f"{name}_{ranks}_{4 * numel}", cells, lambda: maker(device, numel))
