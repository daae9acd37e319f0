"""The state of the network that a run recorded, as what its stack adds to messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..rows.rows import Row

_BUS = re.compile(r"all-reduce bus bandwidth ([\d.]+) GB/s at this world size, intra-node ([\d.]+)")
# An all-reduce over a healthy network of one 400 Gbit/s port a GPU: eight ports of a node at 22 GB/s each.
HEALTHY_BUS_BYTES_PER_S = 8 * 22e9
# The same as a setting of the machine, whose ports reach nine tenths of what is said of them.
HEALTHY_PORTS = ("network.infiniband.bandwidth=24.4GB/s",)
# Bytes of the message that was timed: with them the bandwidths recorded at 32 to 512 GPUs, which halve with each
# doubling, are one latency a step of the ring.
TIMED_BYTES = 2.7e9
# Bus bandwidth inside a node below which the host's time for a layer grows with the tensor-parallel degree: runs
# recorded 410 to 430 GB/s or 450 to 462, and nothing in between.
PER_RANK_BELOW_BYTES_PER_S = 442e9


@dataclass(frozen=True, slots=True)
class NetworkState:
    """What an all-reduce reached in the run itself: bus bandwidth over all its GPUs, and inside of one node."""

    world_bus_bytes_per_s: float
    node_bus_bytes_per_s: float

    def step_latency_s(self, num_gpus: int) -> float:
        """Return what each step of a collective takes more than on a healthy network.

        S (1/B - 1/B0) / n: the loss of bandwidth over n ranks as a latency of the n - 1 steps of the ring.
        """
        lost = 1.0 / self.world_bus_bytes_per_s - 1.0 / HEALTHY_BUS_BYTES_PER_S
        return max(0.0, TIMED_BYTES * lost / num_gpus)

    @property
    def per_rank(self) -> bool:
        """Whether it is of the nodes where every rank of tensor parallelism costs the host time."""
        return self.node_bus_bytes_per_s < PER_RANK_BELOW_BYTES_PER_S


def network_state(row: Row) -> NetworkState | None:
    """Read the all-reduce bandwidths that a run measured before it trained; None where it did not."""
    found = _BUS.search(row.text("note"))
    return None if found is None else NetworkState(float(found[1]) * 1e9, float(found[2].rstrip(".")) * 1e9)
