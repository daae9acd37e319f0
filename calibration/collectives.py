"""Collectives over the ranks that run this program: started by `torchrun`, on gloo or NCCL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch
import torch.distributed as dist
from torch import Tensor

from .device import Device
from .probe import Call, Probe

FULL = tuple(2**power for power in range(10, 29, 2))
QUICK = (2**12, 2**18)


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


# gloo has no reduce-scatter of one tensor in all versions; what a backend lacks is left out and said.
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


def _probe(device: Device, name: str, maker: Callable[[Device, int], Call], size: int) -> Probe:
    ranks = num_ranks()
    numel = size // 4 // ranks * ranks
    cells: dict[str, str | int | float] = {
        "collective": name, "n_gpus": ranks, "n_nodes": 1, "gpus_per_node_used": ranks, "size_bytes": 4 * numel,
        "size_convention": "total buffer bytes", "library": dist.get_backend(), "interconnect": "host",
    }  # fmt: skip
    return Probe("collectives", f"{name}_{ranks}_{4 * numel}", cells, lambda: maker(device, numel))
