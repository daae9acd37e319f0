"""What a reader must know of figures under a load: batches in waves, queues without end, room that may run out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...cost.serving.capacity import room
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.simulate.failures import FailedReplicas, ReplicaFailures
from ...cost.serving.traffic.requests import Lengths
from ...ir.sizes.fixed_sizes import asked_bounds
from ...ir.units import format_time

if TYPE_CHECKING:
    from .server import Server
    from .tables import ServedModel

# Relative room for rounding.
_SLACK = 1e-9


def wave_notes(found: ServingMetrics) -> Iterator[str]:
    """Say how a static batch that does not fit runs, and how many of it are in flight on average."""
    asked, wave = float(found.concurrency), float(found.batch)
    if asked <= wave * (1.0 + _SLACK):
        return
    in_flight = float(found.requests_per_s * found.e2el_s)
    yield (
        f"{asked:.4g} requests of a replica start at once and run in {round(asked / wave)} waves of {wave:.4g}: TTFT "
        f"is the mean over waves, and {in_flight:.4g} are in flight on average"
    )


def overload_notes(come_per_s: float, most_per_s: float) -> Iterator[str]:
    """Say that requests come faster than they can be answered; of bursts and closed loops, at no rate, nothing."""
    if most_per_s < come_per_s < math.inf:
        yield (
            f"{come_per_s:.3g} requests/s come and {most_per_s:.3g} can be answered: their queue grows, and latencies "
            "with the number of requests"
        )


def failure_note(failures: ReplicaFailures, failed: FailedReplicas, replicas: int) -> str:
    """Say what failures came to in a simulated run, beside what renewal theory expects."""
    expected = failures.expected(replicas, failed.span_s)
    return (
        f"{failed.failures} failures of replicas ({expected:.3g} expected), each away for "
        f"{format_time(failures.restart_s)}: up {failed.up_share:.2%} of the time (MTBF / (MTBF + restart): "
        f"{failures.availability:.2%}); {failed.restarted:,} requests went on elsewhere"
    )


def padding_notes(served: ServedModel) -> Iterator[str]:
    """Say that a model takes lengths in steps, so that a server pads what lies between them."""
    for graph in (served.prefill.source, served.decode.source):
        legal = [bound.legal for bound in asked_bounds(graph) if bound.step > 1]
        if legal:
            yield f"{graph.workload} of '{graph.name}' runs lengths of {legal[0]}: others are padded to the next"


def room_notes(server: Server, lengths: Lengths, found: ServingMetrics) -> Iterator[str]:
    """Say that sequences which grow may run out of room, where the scheduler does not set it aside."""
    scheduler = server.engine.scheduler
    if scheduler.reserve_output:
        return
    whole = float(room(server.times, scheduler, lengths, whole=True))
    if float(found.batch) > whole * (1.0 + _SLACK):
        yield (
            f"the KV cache holds {whole:g} requests at their full length and {float(found.batch):.4g} run: some "
            "may be put back and computed anew, which is not in these figures; --serve shows it"
        )
