"""What the host does and what goes over its link: bytes over bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import UsageError
from ..ir.ops import OpClass
from ..ir.ops.host import UPDATE
from .program import Entry, Group
from .roofline import KernelTimes
from .system import System

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HostSide:
    """Copies between device and host, and the update that runs on the host."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "host"

    def claims(self, entry: Entry) -> bool:
        """Copies and the host's own work."""
        return entry.kind is OpClass.HOST

    def time(self, group: Group, amounts: Array, system: System) -> KernelTimes:
        """T = bytes / (u BW) of the link, plus its latency a copy; an update at the chip's share of the host memory."""
        n = len(group.entries)
        moved = amounts[2 * n : 3 * n]
        rates = np.array([bytes_per_s(system, e) for e in group.entries], dtype=np.float64)[:, None]
        latency = np.array([0.0 if e.op == UPDATE else _latency(system) for e in group.entries])[:, None]
        nothing = np.zeros_like(moved)
        return KernelTimes(nothing, nothing, moved / rates + latency, 0.0)


def bytes_per_s(system: System, entry: Entry) -> float:
    """Return what a copy, or the host's update, reaches; UsageError when the system does not say."""
    if entry.op == UPDATE:
        if system.host is None:
            raise UsageError(_missing(system, "node.host_memory", "capacity, bandwidth and efficiency"))
        return system.host.bytes_per_s * system.host.efficiency / system.node_size
    if system.chip.host_link is None:
        raise UsageError(_missing(system, "chip.host_link", "bandwidth, latency and efficiency"))
    return system.chip.host_link.bytes_per_s * system.chip.host_link.efficiency


def _latency(system: System) -> float:
    return system.chip.host_link.latency_s if system.chip.host_link is not None else 0.0


def _missing(system: System, section: str, keys: str) -> str:
    return f"offloading needs {section} ({keys}), of which system '{system.name}' says nothing: add it, or use --set"
