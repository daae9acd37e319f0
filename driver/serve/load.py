"""How requests come to a server: so many in flight, so many a second, in batches, or as many as it can answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backends.machine.software.engine import Engine
from ...cost.serving.batching.continuous import most_throughput, steady
from ...cost.serving.batching.open_loop import at_rate
from ...cost.serving.batching.steps import way_in_s
from ...cost.serving.batching.times import StepTimes
from ...cost.serving.capacity import max_batch
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.slo import ANYTHING, SLO, tails_of
from ...cost.serving.traffic.requests import Lengths
from ...ir.errors import InfeasibleError, UsageError
from ...ir.records import dataclass
from ...ir.units import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests on all replicas together; where nothing is given, as many as they can answer.

    Attributes:
        concurrency: requests that clients keep in flight: each answer is followed by a new request.
        requests_per_s: requests that come a second, whatever is answered.
        batch: requests of each replica that start together and end together.
        traffic: requests one by one, as people write it: what a simulation serves.
    """

    concurrency: float | None = None
    requests_per_s: float | None = None
    batch: float | None = None
    traffic: str | None = None

    def __post_init__(self) -> None:
        """Refuse two loads at once, and none at all."""
        given = {k: v for k, v in self.given.items() if v is not None}
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} all say how requests come: give one")
        for name, value in given.items():
            if isinstance(value, str):
                continue
            if not 0 < value < float("inf") or (name != "requests_per_s" and value < 1):
                least = "more than 0" if name == "requests_per_s" else "1 or more"
                raise UsageError(f"{name}={value:g}; allowed: {least}")

    @property
    def given(self) -> dict[str, float | str | None]:
        """What may be given, by name."""
        return {
            "concurrency": self.concurrency,
            "requests_per_s": self.requests_per_s,
            "batch": self.batch,
            "traffic": self.traffic,
        }

    @property
    def name(self) -> str:
        """What the load is called: the attribute that is given, or `most`."""
        return next((name for name, value in self.given.items() if value is not None), "most")

    def of_replica(self, num_replicas: int) -> Load:
        """Return the part of one replica; a batch is of one already.

        UsageError where clients are too few for each replica to have one.
        """
        if self.concurrency is not None and self.concurrency < num_replicas:
            raise UsageError(
                f"concurrency={self.concurrency:g} on {num_replicas} replicas leaves some of them without a request; "
                f"allowed: {num_replicas} or more, or fewer replicas (--dp)"
            )
        return Load(
            concurrency=None if self.concurrency is None else self.concurrency / num_replicas,
            requests_per_s=None if self.requests_per_s is None else self.requests_per_s / num_replicas,
            batch=self.batch,
        )


def under_load(
    times: StepTimes, engine: Engine, load: Load, lengths: Lengths, target: SLO = ANYTHING
) -> ServingMetrics:
    """Return the steady state of one replica with continuous batching under a load.

    Where no load is given, as many requests are in flight as the target lets be.
    InfeasibleError where more requests come than it can answer, with what it can, and for a target that one request
    alone does not meet.
    """
    if load.concurrency is not None:
        return steady(times, engine, load.concurrency, lengths)
    if load.requests_per_s is not None:
        return at_rate(times, engine, load.requests_per_s, lengths)
    if target:
        return most_within(times, engine, lengths, target)
    most = most_throughput(times, engine, lengths)
    return _with_way_in(most, float(way_in_s(engine.overheads, lengths)))


def most_within(times: StepTimes, engine: Engine, lengths: Lengths, target: SLO) -> ServingMetrics:
    """Return the steady state with most requests in flight that meets a target.

    InfeasibleError where one request alone does not, with what it has.
    """
    most = int(max_batch(times, engine.scheduler, lengths))
    tails = tails_of(times, engine, lengths, target)
    found = tails(steady(times, engine, np.arange(1.0, most + 1.0), lengths))
    good = np.flatnonzero(target.met_by(found))
    if not len(good):
        alone = steady(times, engine, 1.0, lengths)
        raise InfeasibleError(f"{target} asked; one request alone has {latencies_text(alone)}")
    return steady(times, engine, float(good[-1]) + 1.0, lengths)


def latencies_text(found: ServingMetrics) -> str:
    """Return `TTFT 80 ms and TPOT 12 ms`."""
    first, gap = format_time(float(found.ttft_s)), float(found.tpot_s)
    return f"TTFT {first}" if np.isnan(gap) else f"TTFT {first} and TPOT {format_time(gap)}"


def _with_way_in(most: ServingMetrics, way_in_s: float) -> ServingMetrics:
    """Requests on their way to the scheduler hold no place in a batch: so many more are in flight."""
    return replace(
        most,
        concurrency=most.concurrency + most.requests_per_s * way_in_s,
        ttft_s=most.ttft_s + way_in_s,
        ttft_low_s=most.ttft_low_s + way_in_s,
        ttft_high_s=most.ttft_high_s + way_in_s,
    )
