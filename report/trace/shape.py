"""One task of a stage drawn from its nodes: compute one behind the other, messages beside it, gaps where they show.

A part of the breakdown says which share of its messages is exposed; every message of that part leaves a gap of that
share in compute and runs the rest of its time beside it. So a task is as long as the roll-up says, node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from ...cost.step.stage_time import LENT
from ...ir.ops import Trait, has
from ...ir.records import dataclass
from ...ir.schedules.kind import Kind
from .nodes import COMPUTE, HOST, NodeTime
from .spent import Spent

# What parts of an account that are no node's are called.
EXTRA_NAMES: Mapping[str, str] = MappingProxyType(
    {LENT: "SM contention", "offload": "waiting for copies", "host": "host"}
)


def stream_of(part: str) -> str:
    """Return where a part that is no node's is drawn: what computes on its stream, what only waits on the host's."""
    return COMPUTE if part.startswith("compute.") else HOST


@dataclass(frozen=True, slots=True)
class StreamSlice:
    """A slice of a stream, in seconds from the start of the task; what is no node has a name of its own.

    `run` is the place of the run it is of, -1 for what comes from another stage.
    """

    stream: str
    start_s: float
    end_s: float
    node: NodeTime | None
    name: str
    run: int


@dataclass(frozen=True, slots=True)
class RegionRun:
    """One run of a region in a task: its place among the rows of the chunk, and when it runs."""

    region: str
    place: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TaskShape:
    """A task: how long it takes, the runs of its regions, and the slices of its streams in order of their start.

    `send_s` is how long its result is on the links at its end.
    """

    kind: Kind
    time_s: float
    runs: tuple[RegionRun, ...]
    pieces: tuple[StreamSlice, ...]
    send_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Booking:
    """What an account makes of nodes: seconds that pass and seconds that are drawn, each for a second of a part.

    `extra_s` is what passes for a second that nodes pass, part by part.
    """

    passing: Mapping[str, float]
    drawn: Mapping[str, float]
    extra_s: Mapping[str, float]

    @classmethod
    def of(cls, spent: Spent, nodes: Iterable[NodeTime]) -> Booking:
        """Compare the nodes of a whole stage with its account."""
        alone: dict[str, float] = {}
        for n in nodes:
            if not n.is_copy:
                alone[n.part] = alone.get(n.part, 0.0) + n.time_s
        timed = {part: s for part, s in alone.items() if s > 0.0}
        booked = {part: spent.exposed.get(part, 0.0) for part in timed}
        passing = {part: booked[part] / s for part, s in timed.items()}
        drawn = {part: (booked[part] + spent.hidden.get(part, 0.0)) / s for part, s in timed.items()}
        whole = sum(booked.values())
        extra = {p: s / whole if whole else s for p, s in spent.exposed.items() if p not in alone and s > 0.0}
        return cls(passing, drawn, extra)

    def passing_s(self, node: NodeTime) -> float:
        """Seconds that a node takes of its task."""
        return 0.0 if node.is_copy else node.time_s * self.passing.get(node.part, 1.0)

    def drawn_s(self, node: NodeTime) -> float:
        """Seconds that a node is drawn for."""
        return node.time_s if node.is_copy else node.time_s * self.drawn.get(node.part, 1.0)


@dataclass(slots=True)
class Drawing:
    """Slices under construction: compute moves the clock, messages wait for their place."""

    booking: Booking
    clock_s: float = 0.0
    pieces: list[StreamSlice] = field(default_factory=list)
    wanted: dict[str, list[tuple[float, float, NodeTime, int]]] = field(default_factory=dict)

    def node(self, node: NodeTime, run: int) -> None:
        """Put one node behind those before it."""
        passing, drawn = self.booking.passing_s(node), self.booking.drawn_s(node)
        start = self.clock_s
        self.clock_s += passing
        if not (node.is_message or node.is_copy):
            self.pieces.append(StreamSlice(node.stream, start, self.clock_s, node, "", run))
        elif drawn > 0.0:
            early = self.clock_s - drawn if node.gathers else start
            self.wanted.setdefault(node.stream, []).append((early, drawn, node, run))

    def arrived(self, node: NodeTime, receives: bool) -> None:
        """Put together what arrived from another stage, or only let the time pass that is booked for that."""
        if receives:
            self.node(node, -1)
        else:
            self.clock_s += self.booking.passing_s(node)

    def extras(self, since_s: float, run: int) -> None:
        """Add what an account has beside its nodes, in proportion to what passed since a moment."""
        passed = self.clock_s - since_s
        for part, per_s in self.booking.extra_s.items():
            start = self.clock_s
            self.clock_s += passed * per_s
            name = EXTRA_NAMES.get(part, part)
            self.pieces.append(StreamSlice(stream_of(part), start, self.clock_s, None, name, run))

    def done(self) -> tuple[StreamSlice, ...]:
        """Lay the messages on their streams; return all slices by start."""
        for stream, wanted in self.wanted.items():
            self.pieces += _laid(stream, wanted, self.clock_s)
        return tuple(sorted(self.pieces, key=lambda p: (p.start_s, p.end_s)))


@dataclass(frozen=True, slots=True)
class TaskEnds:
    """Whether a task takes something from another stage, and whether it hands something on."""

    receives: bool = False
    sends: bool = False


_INNER = TaskEnds()


def draw(
    rows: Sequence[tuple[str, Sequence[NodeTime]]],
    kind: Kind,
    booking: Booking,
    boundary: Sequence[NodeTime] = (),
    ends: TaskEnds = _INNER,
) -> TaskShape:
    """Draw one task.

    Args:
        rows: the regions of the chunk with their nodes, in the order in which they run.
        kind: what the task does.
        booking: the account of its stage.
        boundary: what stages exchange: sends, and what puts their pieces together where they arrive.
        ends: what of that this task does. A roll-up books all of it for every task; what a task does not do, it waits
            for: where it has no one to send to, at its start.
    """
    drawing = Drawing(booking)
    sent = [n for n in boundary if has(n, Trait.SENDS)]
    message_s = sum(booking.passing_s(n) for n in sent)
    drawing.clock_s = 0.0 if ends.sends else message_s
    for node in (n for n in boundary if not has(n, Trait.SENDS)):
        drawing.arrived(node, ends.receives)
    runs: list[RegionRun] = []
    for place, (region, nodes) in enumerate(rows):
        start = drawing.clock_s
        for node in nodes:
            drawing.node(node, place)
        drawing.extras(start, place)
        runs.append(RegionRun(region, place, start, drawing.clock_s))
    drawing.clock_s += message_s if ends.sends else 0.0
    whole = drawing.clock_s + sum(booking.extra_s.values()) * sum(booking.passing_s(n) for n in boundary)
    send_s = min(sum(booking.drawn_s(n) for n in sent), whole) if ends.sends else 0.0
    return TaskShape(kind, whole, tuple(runs), drawing.done(), send_s)


def _laid(stream: str, wanted: Sequence[tuple[float, float, NodeTime, int]], end_s: float) -> list[StreamSlice]:
    """Place messages of one stream; where a stream has more than the task, all of them are drawn shorter."""
    total = sum(drawn for _, drawn, _, _ in wanted)
    shrink = min(1.0, end_s / total) if total > 0.0 else 1.0
    sizes = [drawn * shrink for _, drawn, _, _ in wanted]
    starts = places([early for early, *_ in wanted], sizes, end_s)
    return [
        StreamSlice(stream, s, s + d, n, "", run) for s, d, (_, _, n, run) in zip(starts, sizes, wanted, strict=True)
    ]


def places(wanted: Sequence[float], sizes: Sequence[float], end: float) -> list[float]:
    """Return where to put things on a line from 0 to `end`: in order, none over another, near where each is wanted.

    >>> places([0.0, 1.0, 9.0], [2.0, 3.0, 4.0], 10.0)
    [0.0, 2.0, 6.0]
    """
    starts: list[float] = []
    free = 0.0
    for at, size in zip(wanted, sizes, strict=True):
        starts.append(max(at, free))
        free = starts[-1] + size
    limit = end
    for k in reversed(range(len(starts))):
        starts[k] = max(min(starts[k], limit - sizes[k]), 0.0)
        limit = starts[k]
    return starts
