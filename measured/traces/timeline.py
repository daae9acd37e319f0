"""How the time of a device was spent: computing, communicating with nothing beside it, copying, idle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .kinds import KernelKind
from .trace import RanKernel, RankTrace, Span


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Microseconds of one rank from its first kernel to the end of its last; the first four parts add up.

    What is exposed runs while nothing computes; copies also while nothing communicates. `comm_us` and `copy_us` are
    all of theirs, hidden or not.
    """

    compute_us: float
    exposed_comm_us: float
    exposed_copy_us: float
    idle_us: float
    comm_us: float
    copy_us: float

    @property
    def total_us(self) -> float:
        """The whole."""
        return self.compute_us + self.exposed_comm_us + self.exposed_copy_us + self.idle_us


def spent(trace: RankTrace) -> TimeSpent:
    """Return how the time of a rank was spent, of kernels whose launch is in the trace where any is."""
    kernels = [k for k in trace.kernels if k.launched] or trace.kernels
    comm = [k for k in kernels if k.kind is KernelKind.COLLECTIVE]
    copies = [k for k in kernels if k.kind is KernelKind.COPY and not k.name.startswith("Memset")]
    apart = {id(k) for k in (*comm, *copies)}
    compute = [k for k in kernels if id(k) not in apart]
    computing, talking = covered(compute), covered([*compute, *comm])
    busy = covered(kernels)
    first = min(k.start_us for k in kernels)
    last = max(k.end_us for k in kernels)
    return TimeSpent(
        computing, talking - computing, busy - talking, last - first - busy, covered(comm), covered(copies)
    )


def covered(spans: Iterable[Span]) -> float:
    """Return the microseconds in which at least one of them runs.

    >>> covered([Span("a", 0, 3), Span("b", 2, 2), Span("c", 6, 1)])
    5.0
    """
    found, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda s: s.start_us):
        found += max(span.end_us - max(span.start_us, until), 0.0)
        until = max(until, span.end_us)
    return found


def in_steps(trace: RankTrace) -> list[list[RanKernel]]:
    """Return the operators of each step of a CPU's trace; a device's kernels run behind the marks of the host."""
    return [[k for k in trace.kernels if s.start_us <= k.start_us < s.end_us] for s in trace.steps]
