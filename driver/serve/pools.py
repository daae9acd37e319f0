"""Prompts on some devices and answers on others: two servers, and the caches that go from one to the other."""

from __future__ import annotations

import numpy as np

from ...backends.machine.system import System
from ...backends.network.topology.level import NetworkLevel
from ...cost.serving.disaggregated import PoolMetrics, PoolPair, TransferLink, WorkerGroup, most_in_flight
from ...cost.serving.pool_tails import with_pool_tails
from ...cost.serving.slo import ANYTHING, SLO
from ...cost.serving.traffic.requests import Lengths
from ...ir.records import dataclass
from .server import Server

# Rounds in which so many numbers of requests in flight are looked at, for the most within a target.
_ROUNDS, _TRIED = 3, 65


@dataclass(frozen=True, slots=True)
class Pools:
    """Workers that compute prompts, workers that decode, and what joins them.

    Attributes:
        prefill: prompts; as many workers as its plan has replicas.
        decode: answers, likewise.
        link: what carries the caches.
        batch: prompts that a prefill worker runs at once, at most.
        found: what both do under the load, once asked.
    """

    prefill: Server
    decode: Server
    link: TransferLink
    batch: int = 1
    found: PoolMetrics | None = None

    @property
    def num_gpus(self) -> int:
        """Devices of both."""
        return self.prefill.plan.num_gpus + self.decode.plan.num_gpus

    @property
    def workers(self) -> tuple[WorkerGroup, WorkerGroup]:
        """Both as closed forms take them."""
        return (_pool(self.prefill, self.batch), _pool(self.decode, 0))


def _pool(server: Server, batch: int) -> WorkerGroup:
    workers = server.num_replicas
    return WorkerGroup(
        times=server.times, engine=server.engine, workers=workers, gpus=server.plan.num_gpus // workers, batch=batch
    )


def link_of(system: System, num_gpus: int, layers: int = 1, bytes_per_s: float | None = None) -> TransferLink:
    """Return what joins pools on so many devices: the innermost level of the network that holds them all."""
    level = level_of(system, num_gpus)
    rate = float(level.bytes_per_s) * float(level.efficiency) if bytes_per_s is None else bytes_per_s
    return TransferLink(bytes_per_s=rate, latency_s=float(level.latency_s), layers=layers)


def link_between(one: System, other: System, layers: int = 1, bytes_per_s: float | None = None) -> TransferLink:
    """Return what joins pools on machines of two kinds: the slower of their outermost networks, the longer of the ways.

    Machines of two kinds share no board and no scale-up domain.
    """
    levels = [system.levels[-1] for system in (one, other)]
    slowest = min(float(level.bytes_per_s) * float(level.efficiency) for level in levels)
    latency_s = max(float(level.latency_s) for level in levels)
    return TransferLink(bytes_per_s=slowest if bytes_per_s is None else bytes_per_s, latency_s=latency_s, layers=layers)


def level_of(system: System, num_gpus: int) -> NetworkLevel:
    """Return the innermost level of a network that holds so many devices."""
    found = (level for level in system.levels if level.size is None or level.size >= num_gpus)
    return next(found, system.levels[-1])


def most_of(pools: Pools, lengths: Lengths, target: SLO = ANYTHING) -> float:
    """Return the most requests a second that both pools can do within a target; 0 where one alone misses it."""
    prefill, decode = pools.workers
    pair = PoolPair.of(prefill, decode, pools.link, lengths)
    able = pair.able
    most = float(np.minimum(able.prefill_per_s, able.decode_per_s))
    if not target:
        return most
    # In flight: latencies grow with them.
    low, high, within = 1.0, float(most_in_flight(prefill, decode, able)), 0.0
    for _ in range(_ROUNDS):
        tried = np.geomspace(low, max(high, low), _TRIED)
        served = with_pool_tails(pair.under(tried), pair, target).served
        met = int(np.argmin(np.append(target.met_by(served), False)))
        if not met:
            return within
        within = min(float(served.requests_per_s[met - 1]), most)
        low, high = float(tried[met - 1]), float(tried[min(met, _TRIED - 1)])
    return within
