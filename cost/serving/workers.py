"""Pools of workers and what carries caches between them: one of each, or many that differ in numbers alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...backends.machine.software.engine import Engine
from ...ir.errors import UsageError
from ...ir.records import dataclass
from .batching.times import Array, Nums, StepTimes


class Workers(Protocol):
    """Workers of one kind, as closed forms see them: how many, and their batch, are numbers or arrays alike."""

    @property
    def times(self) -> StepTimes:
        """Of one worker."""
        ...

    @property
    def engine(self) -> Engine:
        """What it runs."""
        ...

    @property
    def workers(self) -> Nums:
        """How many there are."""
        ...

    @property
    def gpus(self) -> int:
        """Devices of a worker."""
        ...

    @property
    def batch(self) -> Nums:
        """Most prompts that a prefill worker runs at once; most sequences of a decode worker, 0 for what fits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """Workers of one kind.

    Attributes:
        times: of one worker.
        engine: that it runs.
        workers: how many there are.
        gpus: devices of a worker.
        batch: most prompts that a prefill worker runs at once; most sequences of a decode worker, 0 for what fits.
    """

    times: StepTimes
    engine: Engine
    workers: int
    gpus: int = 1
    batch: int = 0

    def __post_init__(self) -> None:
        """UsageError for counts below 1."""
        for name, least in (("workers", 1), ("gpus", 1), ("batch", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)} of a pool; allowed: {least} or more")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManyPools:
    """Pools of the same workers, of which each has more or fewer, with greater or smaller batches.

    Attributes:
        times: of one worker.
        engine: that it runs.
        workers: how many there are, pool by pool.
        gpus: devices of a worker.
        batch: as of `WorkerGroup`, pool by pool; both are broadcast against each other.
    """

    times: StepTimes
    engine: Engine
    workers: Array
    gpus: int
    batch: Nums = 0.0

    @classmethod
    def like(cls, decode: Workers, workers: Array) -> ManyPools:
        """Return decode pools of so many of these workers each."""
        return cls(times=decode.times, engine=decode.engine, workers=workers, gpus=decode.gpus)


class CacheTransfer(Protocol):
    """What carries caches between pools, as closed forms see it; numbers or arrays alike."""

    @property
    def bytes_per_s(self) -> Nums:
        """Of one device of a worker."""
        ...

    @property
    def latency_s(self) -> Nums:
        """Of a transfer."""
        ...

    @property
    def layers(self) -> int:
        """Parts in which a cache is sent; 1 at the end of its prompt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLink:
    """What carries caches between pools.

    Attributes:
        bytes_per_s: of one device of a worker; its parts of a cache go side by side.
        latency_s: of a transfer.
        layers: of the model, where caches are sent layer by layer while the prompt still runs; 1 sends them at its end.
    """

    bytes_per_s: float
    latency_s: float = 0.0
    layers: int = 1

    def __post_init__(self) -> None:
        """UsageError for what carries nothing."""
        if not self.bytes_per_s > 0 or self.latency_s < 0 or self.layers < 1:
            raise UsageError(
                f"bytes_per_s={self.bytes_per_s:g} latency_s={self.latency_s:g} layers={self.layers} of a link; "
                "allowed: above 0, 0 or more, 1 or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManyLinks:
    """What carries caches between each of many pairs of pools; all are sent in as many parts."""

    bytes_per_s: Array
    latency_s: Array
    layers: int = 1


def at_once(prefill: Workers) -> Array:
    """Return the prompts that a prefill worker runs at once at most, one or more."""
    return np.maximum(np.asarray(prefill.batch, dtype=np.float64), 1.0)
