"""Failures of replicas: when each is away, and the share of the time in which replicas answer.

A replica fails at a constant rate 1/M while it is up and is up again a restart R later: an alternating renewal
process, of which a share M / (M + R) of the time is up. The run begins in its steady state, so that this share and
the number of failures, replicas x time / (M + R), hold for runs of any length on average.
Source: Barlow and Proschan, Mathematical Theory of Reliability, 1965, section 3.2.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

import numpy as np

from ....ir.errors import UsageError
from ....ir.records import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaFailures:
    """How often a replica fails, and how long it is away.

    Attributes:
        mtbf_s: mean time between failures of a replica, counted while it is up.
        restart_s: from a failure to the first step behind it: notice, replace, start, load.
        seed: of the random moments.
    """

    mtbf_s: float
    restart_s: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.mtbf_s < math.inf or not 0 <= self.restart_s < math.inf:
            raise UsageError(
                f"a replica fails every {self.mtbf_s:g} s and restarts in {self.restart_s:g} s: above 0, and 0 or more"
            )

    @property
    def availability(self) -> float:
        """Share of the time in which a replica is up: M / (M + R).

        >>> ReplicaFailures(mtbf_s=900.0, restart_s=100.0).availability
        0.9
        """
        return self.mtbf_s / (self.mtbf_s + self.restart_s)

    def expected(self, replicas: int, span_s: float) -> float:
        """Failures of so many replicas in a time, on average."""
        return replicas * span_s / (self.mtbf_s + self.restart_s)


@dataclass(frozen=True, slots=True)
class FailedReplicas:
    """What failures came to in a run.

    Attributes:
        failures: of all replicas, from the first request that is sent to the last answer.
        restarted: requests that started again on another replica, each once.
        restarts: how often they did.
        up_share: share of that time in which a replica was up, on average over replicas.
        span_s: that time.
    """

    failures: int
    restarted: int
    restarts: int
    up_share: float
    span_s: float


class Outages:
    """The moments at which replicas fail and are up again, in order of time.

    Args:
        failures: how often and how long.
        num: replicas.

    Attributes:
        up_at_s: of each replica that is away, when it is up again.
    """

    __slots__ = ("_events", "_failures", "_num", "_random", "_spans", "up_at_s")

    def __init__(self, failures: ReplicaFailures, num: int) -> None:
        self._failures, self._num = failures, num
        self._random = np.random.default_rng(failures.seed)
        self._spans: list[tuple[float, float]] = []
        self._events: list[tuple[float, int]] = []
        self.up_at_s: dict[int, float] = {}
        for replica in range(num):
            if self._random.random() < failures.availability:
                self._events.append((self._random.exponential(failures.mtbf_s), replica))
            else:
                self._away(replica, -self._random.random() * failures.restart_s)
        heapify(self._events)

    @property
    def next_s(self) -> float:
        """When a replica next fails or is up again."""
        return self._events[0][0]

    def step(self) -> tuple[float, int, bool]:
        """Go on by one event: when, of which replica, and whether it fails."""
        now_s, replica = heappop(self._events)
        fails = replica not in self.up_at_s
        if fails:
            self._away(replica, now_s)
        else:
            del self.up_at_s[replica]
            heappush(self._events, (now_s + self._random.exponential(self._failures.mtbf_s), replica))
        return now_s, replica, fails

    def _away(self, replica: int, now_s: float) -> None:
        up_s = now_s + self._failures.restart_s
        self.up_at_s[replica] = up_s
        self._spans.append((now_s, up_s))
        heappush(self._events, (up_s, replica))

    def between(self, low_s: float, high_s: float) -> tuple[int, float]:
        """Return the failures within a time, and the share of it in which replicas were up."""
        spans = np.array(self._spans).reshape(-1, 2)
        away_s = float((np.clip(spans[:, 1], low_s, high_s) - np.clip(spans[:, 0], low_s, high_s)).sum())
        failures = int(((spans[:, 0] >= low_s) & (spans[:, 0] <= high_s)).sum())
        return failures, 1.0 - away_s / (self._num * (high_s - low_s))
