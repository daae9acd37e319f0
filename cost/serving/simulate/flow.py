"""The events of a run in order of time: requests that are sent, steps that end, prompts that move to another pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter

from ....ir.errors import InfeasibleError, InternalError
from ....ir.records import dataclass
from ..traffic.traffic import Traffic
from .autoscale import Scaler
from .book import Book
from .failures import Outages
from .lane import BatchLane
from .running import Put

_LOAD = attrgetter("load")
# A request that starts again so often is never answered: replicas fail faster than they answer.
_MOST_RESTARTS = 1000


@dataclass(frozen=True, slots=True)
class Stage:
    """A pool of lanes that requests pass through.

    Attributes:
        lanes: groups of all replicas.
        least_loaded: a request goes to the lane with the fewest requests, else to one after the other.
        way_in_s: from the client, or from the pool before, into the queue, by request.
        groups: lanes of a replica.
        outages: when its replicas are away, where they fail: those of the only stage.
        scaler: which replicas there are, where they come and go.
    """

    lanes: Sequence[BatchLane]
    least_loaded: bool
    way_in_s: Sequence[float]
    groups: int = 1
    outages: Outages | None = None
    scaler: Scaler | None = None

    @property
    def up(self) -> list[BatchLane]:
        """Lanes that take requests."""
        if self.scaler is not None:
            up = self.scaler.up
            return [lane for i, lane in enumerate(self.lanes) if i // self.groups in up]
        away = {} if self.outages is None else self.outages.up_at_s
        return [lane for i, lane in enumerate(self.lanes) if i // self.groups not in away]

    def next_up_s(self) -> float:
        """When requests may next be taken, where none are now: at an event, if not yet then at one behind it."""
        if self.scaler is not None:
            return self.scaler.next_s
        assert self.outages is not None
        return min(self.outages.up_at_s.values())


class Flow:
    """A run of some traffic through pools of lanes, one behind the other.

    Args:
        traffic: what clients send.
        stages: pools; of several the first computes prompts and the last decodes.
        book: where moments are written.
    """

    __slots__ = ("_book", "_ends", "_follows", "_next", "_outputs", "_places", "_puts", "_stages", "_starts",
                 "_traffic", "_turns", "_up", "now_s")  # fmt: skip

    def __init__(self, traffic: Traffic, stages: Sequence[Stage], book: Book) -> None:
        self._traffic, self._stages, self._book = traffic, stages, book
        self._outputs = traffic.requests.output.tolist()
        self._follows = {} if traffic.clients else _followers(traffic)
        self._turns = [0] * len(stages)
        # Lanes that take requests, and what those need that had begun on one which failed.
        self._up = [stage.up for stage in stages]
        self._puts: dict[int, Put] = {}
        self._places = {lane.number: (stage, lane) for stage, pool in enumerate(stages) for lane in pool.lanes}
        self._starts: list[tuple[float, int, int]] = []
        self._ends: list[tuple[float, int, int]] = []
        self._next = len(traffic)
        self.now_s = 0.0

    def run(self) -> None:
        """Serve all requests."""
        self._send_first()
        starts, ends = self._starts, self._ends
        changing = [(stage.outages or stage.scaler, i) for i, stage in enumerate(self._stages)]
        changes = [(events, i) for events, i in changing if events is not None]
        while starts or ends:
            if changes:
                events, number = min(changes, key=lambda one: one[0].next_s)
                if events.next_s <= min(queue[0][0] for queue in (starts, ends) if queue):
                    self._change(number, events)
                    continue
            if not ends or (starts and starts[0][0] <= ends[0][0]):
                self._deliver()
            else:
                self._end()

    def _send_first(self) -> None:
        """Put what is sent without waiting for an answer into the list of events."""
        traffic, way_in_s = self._traffic, self._stages[0].way_in_s
        moments, waits = traffic.arrival_s.tolist(), set(self._follows.values())
        if traffic.clients:
            self._next = min(traffic.clients, len(traffic))
        first = [i for i in range(self._next) if i not in waits]
        for i in first:
            self._book.arrived_s[i] = moments[i]
        self._starts.extend((moments[i] + way_in_s[i], 0, i) for i in first)
        heapify(self._starts)

    def _deliver(self) -> None:
        """Give the next request to a lane."""
        now_s, number, request = heappop(self._starts)
        self._move(now_s)
        stage = self._stages[number]
        if stage.scaler is not None:
            stage.scaler.arrive(request)
        if not self._up[number]:
            heappush(self._starts, (stage.next_up_s(), number, request))
            return
        lane = self._lane(number, stage)
        if lane.enqueue(request, now_s, self._puts.pop(request, None)):
            heappush(self._ends, (lane.end_s, lane.number, lane.version))
        elif lane.idle and not lane.woken:
            lane.woken = True
            heappush(self._ends, (now_s, lane.number, lane.version))

    def _lane(self, number: int, stage: Stage) -> BatchLane:
        up = self._up[number]
        if stage.least_loaded and len(up) > 1:
            return min(up, key=_LOAD)
        turn = self._turns[number] % len(up)
        self._turns[number] = turn + 1
        return up[turn]

    def _change(self, number: int, events: Outages | Scaler) -> None:
        """Let a replica fail, whose requests are sent to others, or come up again; or let replicas come and go."""
        stage = self._stages[number]
        if isinstance(events, Scaler):
            in_flight = len(events.held) + sum(lane.load for lane in stage.lanes)
            now_s, stopped = events.step(in_flight)
            self._move(now_s)
            for replica in stopped:
                self._release(stage, events, replica)
        else:
            now_s, replica, fails = events.step()
            self._move(now_s)
            for lane in stage.lanes[replica * stage.groups : (replica + 1) * stage.groups] if fails else ():
                for request, put in lane.lose(now_s):
                    self._send_again(request, put)
        self._up[number] = stage.up

    def _release(self, stage: Stage, scaler: Scaler, replica: int) -> None:
        """Take a replica's devices back if it takes no more requests and has answered all."""
        lanes = stage.lanes[replica * stage.groups : (replica + 1) * stage.groups]
        if scaler.is_draining(replica) and not any(lane.load for lane in lanes):
            scaler.emptied(replica, self.now_s)

    def _send_again(self, request: int, put: Put | None) -> None:
        restarts = self._book.restarts
        restarts[request] = restarts.get(request, 0) + 1
        if restarts[request] > _MOST_RESTARTS:
            raise InfeasibleError(
                f"request {request + 1} started again {_MOST_RESTARTS:,} times and is not answered: replicas fail "
                "faster than they answer; a longer --mtbf, fewer GPUs a replica or shorter requests are needed"
            )
        if put is not None:
            self._puts[request] = put
        heappush(self._starts, (self.now_s + self._stages[0].way_in_s[request], 0, request))

    def _end(self) -> None:
        """End a step of a lane, send what its answers were waited for with, and start the next step."""
        now_s, number, version = heappop(self._ends)
        stage, lane = self._places[number]
        if version != lane.version:
            return
        self._move(now_s)
        lane.finish()
        lane.woken = True
        for request in lane.done:
            self._done(request, stage, now_s)
        while self._starts and self._starts[0][0] <= now_s:
            self._deliver()
        lane.woken = False
        if lane.start(now_s):
            heappush(self._ends, (lane.end_s, lane.number, lane.version))
        elif (scaler := self._stages[stage].scaler) is not None:
            first = self._stages[stage].lanes[0].number
            self._release(self._stages[stage], scaler, (number - first) // self._stages[stage].groups)

    def _done(self, request: int, stage: int, now_s: float) -> None:
        """Pass a request on to the next pool, or let what waited for its answer be sent."""
        if stage + 1 < len(self._stages) and self._outputs[request] > 1:
            arrives_s = now_s + self._stages[stage + 1].way_in_s[request]
            self._book.first_s[request] = arrives_s
            heappush(self._starts, (arrives_s, stage + 1, request))
            return
        if self._traffic.clients:
            if self._next < len(self._traffic):
                self._send(self._next, now_s + self._traffic.think_s)
                self._next += 1
        elif (follower := self._follows.get(request)) is not None:
            sent_s = float(self._traffic.arrival_s[follower])
            self._send(follower, max(sent_s, now_s + self._traffic.think_s))

    def _send(self, request: int, now_s: float) -> None:
        self._book.arrived_s[request] = now_s
        heappush(self._starts, (now_s + self._stages[0].way_in_s[request], 0, request))

    def _move(self, now_s: float) -> None:
        if not (now_s >= self.now_s and math.isfinite(now_s)):
            raise InternalError(f"time runs from {self.now_s:g} s to {now_s:g} s")
        self.now_s = now_s


def _followers(traffic: Traffic) -> dict[int, int]:
    """Of each turn of a session the next one."""
    if traffic.session is None:
        return {}
    last: dict[int, int] = {}
    follows: dict[int, int] = {}
    for request, session in enumerate(traffic.session.tolist()):
        if session < 0:
            continue
        if session in last:
            follows[last[session]] = request
        last[session] = request
    return follows
