"""What software and hardware decide of a step beyond the times of its kernels."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.software.stack import HostFloor, Overlap
from ...backends.machine.system import System
from ...backends.network.sms import lent_share, memory_share
from ...backends.network.topology.level import NetworkLevel
from ...ir.placement import CP, FSDP, PP, UP
from ...ir.plan import PlanTable
from ...ir.records import dataclass
from ...ir.sizes.expr import Num

Array = NDArray[np.float64]
# Of the host's time for a layer, what its forward phase takes; the backward phase issues twice as many kernels.
FORWARD_SHARE = 1.0 / 3.0


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """How a step is put together.

    Attributes:
        host: the least time that the host takes.
        overlap: which messages hide.
        sm_share: part of the SMs that communication takes while it hides behind computation.
        node_size: devices of a node.
        levels: of the network, from the inside out.
        hbm_bytes_per_s: bandwidth of the memory that messages and computation share.
        rank_spread: standard deviation of the time of ranks for the same work, over its mean.
    """

    host: HostFloor = field(default_factory=HostFloor)
    overlap: Overlap = field(default_factory=Overlap)
    sm_share: Num = 0.0
    node_size: int = 8
    levels: tuple[NetworkLevel, ...] = ()
    hbm_bytes_per_s: Num = np.inf
    rank_spread: float = 0.0

    @classmethod
    def of(cls, system: System) -> StepPolicy:
        """Read it off a system: its software, and what its collectives take from the chip."""
        hbm_bytes_per_s = system.chip.hbm_bytes_per_s
        stack = system.stack
        return cls(
            stack.host,
            stack.overlap,
            lent_share(system),
            system.node_size,
            system.levels,
            hbm_bytes_per_s,
            stack.rank_spread,
        )

    def lost_share(self, part: str, plans: PlanTable) -> Num:
        """Return the seconds of computation that a second of hidden messages of a part costs, at most 1.

        The SMs that move them, and the traffic in HBM that both share: sm_share + contention x memory_share.
        """
        degrees = plans.columns
        every = plans.num_gpus / (plans.tp * degrees[PP])
        groups = {
            "comm.cp": (degrees[CP], plans.tp * degrees[UP]),
            "comm.fsdp": (degrees[FSDP], plans.tp),
            "comm.dp": (every / degrees[FSDP], plans.tp * degrees[FSDP]),
        }
        if part not in groups or self.overlap.contention <= 0.0:
            return self.sm_share
        share = memory_share(self.levels, self.hbm_bytes_per_s, *groups[part])
        return np.minimum(self.sm_share + self.overlap.contention * share, 1.0)

    def layer_s(self, plans: PlanTable) -> Array:
        """Return the host's time for one layer of one micro-batch, forward and backward without recomputation.

        layer + [tp > 1] layer_tp + tp layer_rank + max(0, tp - node) layer_far_rank
        """
        tp, host = plans.tp, self.host
        far = np.maximum(tp - self.node_size, 0.0)
        return np.asarray(
            host.layer_s + (tp > 1.0) * host.layer_tp_s + tp * host.layer_rank_s + far * host.layer_far_rank_s
        )


def floored(device_s: Array, host_s: Array, sharpness: float) -> Array:
    """Return (device^q + host^q)^(1/q): a layer takes what the slower of both takes, and a little more where both do.

    >>> floored(np.array([3.0, 0.0]), np.array([4.0, 4.0]), 2.0)
    array([5., 4.])
    """
    most = np.maximum(device_s, host_s)
    scale = np.where(most > 0.0, most, 1.0)
    both = np.power(device_s / scale, sharpness) + np.power(host_s / scale, sharpness)
    return np.asarray(most * np.power(both, 1.0 / sharpness))
