"""Replicas that come and go with the load: the rule of Kubernetes' HorizontalPodAutoscaler, which KEDA drives too.

Every interval the load over its target per replica, rounded up, is the number that is wanted. It is left as it is
where the load is within a tolerance of the target; more are started only if all of a window asked for more (the least
counts), some are stopped only if all of another window asked for fewer (the most counts). A replica takes requests a
start-up after it was asked for, and devices from then on; one that is stopped takes none, answers those that it has,
and gives its devices back. Those that still start are stopped first, then those that started last.
Sources: kubernetes.io, Horizontal Pod Autoscaling, algorithm details; KEP-853; `pkg/controller/podautoscaler`.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush

import numpy as np

from ....ir.errors import UsageError
from ....ir.records import dataclass

LOADS = ("concurrency", "rps")
# The field's defaults: of the controller's flags, but a start-up, which is that of a model of some 10 to 40 GB.
INTERVAL_S, TOLERANCE, UP_S, DOWN_S, STARTUP_S = 15.0, 0.1, 0.0, 300.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """How many replicas there are, by the load.

    Attributes:
        least: replicas that are always there; with 0, requests wait for the first.
        most: and never more.
        target: load of a replica that is aimed at.
        of: which load: `concurrency`, requests in flight when it is looked at, or `rps`, those that came a second.
        interval_s: from one look to the next.
        up_s: window of which all asked for more before some are started.
        down_s: window of which all asked for fewer before some are stopped.
        startup_s: from asking for a replica to its first step: image, weights, compilation, graphs.
        tolerance: share of the target within which nothing changes.
        initial: replicas at the beginning; None for the least.
    """

    least: int
    most: int
    target: float
    of: str = "concurrency"
    interval_s: float = INTERVAL_S
    up_s: float = UP_S
    down_s: float = DOWN_S
    startup_s: float = STARTUP_S
    tolerance: float = TOLERANCE
    initial: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most or self.most < 1:
            raise UsageError(
                f"autoscaling {self.least}:{self.most}: least and most replicas, 0 <= MIN <= MAX, MAX >= 1"
            )
        if self.of not in LOADS:
            raise UsageError(f"autoscaling looks at '{self.of}'; allowed: {', '.join(LOADS)}")
        if not self.least <= self.begins <= self.most:
            raise UsageError(f"autoscaling begins with {self.begins} replicas; allowed: {self.least} to {self.most}")
        if not 0 < self.target < math.inf:
            raise UsageError(f"autoscaling: the target of a replica is above 0, not {self.target:g}")
        if not 0 < self.interval_s < math.inf:
            raise UsageError(f"autoscaling: an interval is above 0, not {self.interval_s:g} s")
        times = {"up": self.up_s, "down": self.down_s, "startup": self.startup_s, "tolerance": self.tolerance}
        if wrong := [name for name, value in times.items() if not 0 <= value < math.inf]:
            raise UsageError(f"autoscaling: {wrong[0]} is 0 or more, not {times[wrong[0]]:g}")

    @property
    def begins(self) -> int:
        """Replicas at the beginning."""
        return self.least if self.initial is None else self.initial

    def wanted(self, load: float, replicas: int) -> int:
        """Return the replicas that a load asks for beside those that there are, without windows.

        >>> Autoscaling(least=1, most=8, target=10.0).wanted(35.0, 2)
        4
        """
        near = replicas > 0 and abs(load / (self.target * replicas) - 1.0) <= self.tolerance + 1e-12
        # Rounding must not ask for a replica more.
        asked = replicas if near else math.ceil(load / self.target - 1e-9)
        return min(max(asked, self.least), self.most)


@dataclass(frozen=True, slots=True, eq=False)
class ScaledReplicas:
    """What autoscaling came to in a run, from the first request that is sent to the last answer.

    Attributes:
        at_s: moments at which replicas changed, the first at the beginning.
        held: replicas that have devices from then on: those that start, serve and are emptied.
        serving: those of them that take requests.
        starts: replicas that were asked for after the beginning.
        span_s: how long the run was.
    """

    at_s: tuple[float, ...]
    held: tuple[int, ...]
    serving: tuple[int, ...]
    starts: int
    span_s: float

    @property
    def mean(self) -> float:
        """Replicas that have devices, on average: all that is paid for."""
        return self._mean(self.held)

    @property
    def mean_serving(self) -> float:
        """Replicas that take requests, on average."""
        return self._mean(self.serving)

    @property
    def most(self) -> int:
        """The most replicas that had devices at once."""
        return max(self.held)

    def _mean(self, levels: tuple[int, ...]) -> float:
        # From the least on: replicas that never change are that number to the last bit.
        lengths, least = np.diff([*self.at_s, self.at_s[0] + self.span_s]), min(levels)
        return (
            least + float(lengths @ (np.array(levels) - least)) / self.span_s if self.span_s > 0 else float(levels[-1])
        )


class Scaler:
    """The replicas of a pool while it runs: which take requests, which start, which are emptied.

    Args:
        rule: how many are wanted.

    Attributes:
        up: replicas that take requests.
        held: requests that wait for the first replica.
        came: requests since the last look.
    """

    __slots__ = (
        "_asked",
        "_draining",
        "_free",
        "_log",
        "_look_s",
        "_order",
        "_rule",
        "_starting",
        "_starts",
        "came",
        "held",
        "up",
    )

    def __init__(self, rule: Autoscaling) -> None:
        self._rule = rule
        self.up = set(range(rule.begins))
        self._free = list(range(rule.begins, rule.most))
        # Those that serve, in the order in which they were asked for; and those that start, with the moment they serve.
        self._order = list(range(rule.begins))
        self._starting: list[tuple[float, int]] = []
        self._draining = set[int]()
        self._asked: deque[tuple[float, int]] = deque([(0.0, rule.begins)])
        self._look_s = rule.interval_s
        self._starts, self.came = 0, 0
        self.held = set[int]()
        self._log = [(0.0, rule.begins, rule.begins)]

    @property
    def next_s(self) -> float:
        """When replicas are next looked at, or one begins to serve."""
        return min(self._look_s, self._starting[0][0]) if self._starting else self._look_s

    def arrive(self, request: int) -> None:
        """Count a request when it comes, and hold it while no replica takes it."""
        self.came += request not in self.held
        (self.held.discard if self.up else self.held.add)(request)

    def step(self, in_flight: int) -> tuple[float, list[int]]:
        """Go on by one event: when, and which replicas take no more requests; `in_flight` are there or wait."""
        now_s, stopped = self.next_s, list[int]()
        if now_s == self._look_s:
            self._look_s += self._rule.interval_s
            stopped = self._scale(now_s, in_flight)
        while self._starting and self._starting[0][0] <= now_s:
            replica = heappop(self._starting)[1]
            self.up.add(replica)
            self._order.append(replica)
        self._note(now_s)
        return now_s, stopped

    def emptied(self, replica: int, now_s: float) -> None:
        """Take the devices of a replica back that takes no more requests and has answered all."""
        self._draining.remove(replica)
        self._free.append(replica)
        self._note(now_s)

    def is_draining(self, replica: int) -> bool:
        """Whether it only answers what it has."""
        return replica in self._draining

    def _scale(self, now_s: float, in_flight: int) -> list[int]:
        """Ask for replicas, or stop some; return those that had begun to serve."""
        rule, replicas = self._rule, len(self.up) + len(self._starting)
        load = float(in_flight) if rule.of == "concurrency" else self.came / rule.interval_s
        self.came = 0
        # While any request is there, one replica at least must be.
        wanted = max(rule.wanted(load, replicas), min(in_flight, 1))
        asked = self._asked
        asked.append((now_s, wanted))
        while asked[0][0] <= now_s - max(rule.up_s, rule.down_s) and len(asked) > 1:
            asked.popleft()
        low = min(num for at_s, num in asked if at_s > now_s - rule.up_s or at_s == now_s)
        high = max(num for at_s, num in asked if at_s > now_s - rule.down_s or at_s == now_s)
        aim = min(max(replicas, low), high)
        for _ in range(min(aim - replicas, len(self._free))):
            heappush(self._starting, (now_s + rule.startup_s, self._free.pop(0)))
            self._starts += 1
        stopped = list[int]()
        for _ in range(replicas - aim):
            if self._starting:
                self._starting.sort()
                self._free.append(self._starting.pop()[1])
                continue
            stopped.append(self._order.pop())
            self.up.remove(stopped[-1])
        self._draining |= set(stopped)
        return stopped

    def _note(self, now_s: float) -> None:
        held = len(self.up) + len(self._starting) + len(self._draining)
        if self._log[-1][1:] != (held, len(self.up)):
            self._log.append((now_s, held, len(self.up)))

    def between(self, low_s: float, high_s: float) -> ScaledReplicas:
        """Return what replicas were within a time."""
        first = [row for row in self._log if row[0] <= low_s][-1]
        rows = [(low_s, *first[1:]), *(row for row in self._log if low_s < row[0] < high_s)]
        at_s, held, serving = (tuple(column) for column in zip(*rows, strict=True))
        return ScaledReplicas(at_s, held, serving, self._starts, high_s - low_s)
