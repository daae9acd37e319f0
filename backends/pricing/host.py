"""What the host does and what goes over its link: bytes over bandwidth."""

from __future__ import annotations

import numpy as np

from ...ir.errors import UsageError
from ...ir.ops import OpClass, Trait, has
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..kernels.terms import KernelTimes, as_rows
from ..machine.system import System
from .amounts import Amounts
from .program import PricedEntry, PricingGroup
from .roofline import Pricer


@dataclass(frozen=True, slots=True)
class HostSide:
    """Copies between device and host, and the update that runs on the host."""

    @property
    def name(self) -> str:
        """What people call it."""
        return "host"

    @property
    def formula(self) -> str:
        """Bytes over what the link, or a chip's share of the host's memory, reaches."""
        return "bytes / (bandwidth x efficiency) + latency; an update has 1/chips of the host's memory and no latency"

    def claims(self, entry: PricedEntry) -> bool:
        """Copies and the host's own work."""
        return entry.kind is OpClass.HOST

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        """The link, or the memory of the host."""
        del system
        return ("node.host_memory.",) if has(entry, Trait.UPDATES) else ("chip.host_link.",)

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        """T = bytes / (u BW) of the link, plus its latency a copy; an update at the chip's share of the host memory."""
        rates = as_rows([bytes_per_s(system, e) for e in group.entries])
        latency = as_rows([0.0 if has(e, Trait.UPDATES) else _latency(system) for e in group.entries])

        def price(amounts: Amounts) -> KernelTimes:
            copied = amounts.num_bytes / rates
            time_s = copied + latency
            return KernelTimes(time_s, {"copy": copied, "latency": np.broadcast_to(latency, time_s.shape)})

        return price


def bytes_per_s(system: System, entry: PricedEntry) -> Num:
    """Return what a copy, or the host's update, reaches; UsageError when the system does not say."""
    if has(entry, Trait.UPDATES):
        if system.host is None:
            raise UsageError(_missing(system, "node.host_memory", "capacity, bandwidth and efficiency"))
        return system.host.bytes_per_s * system.host.efficiency / system.node_size
    if system.chip.host_link is None:
        raise UsageError(_missing(system, "chip.host_link", "bandwidth, latency and efficiency"))
    return system.chip.host_link.bytes_per_s * system.chip.host_link.efficiency


def _latency(system: System) -> Num:
    return system.chip.host_link.latency_s if system.chip.host_link is not None else 0.0


def _missing(system: System, section: str, keys: str) -> str:
    return f"offloading needs {section} ({keys}), of which system '{system.name}' says nothing: add it, or use --set"
