"""What a stage runs once a step, on the clock: gathers before, reductions behind, the update at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...ir.graph import Phase
from ...ir.records import dataclass
from .chrome.tracks import ONCE
from .nodes import COPY_DOWN, COPY_UP, NodeTime, once_of
from .shape import EXTRA_NAMES, Booking, stream_of
from .spent import Spent, pace_once
from .timeline import Timeline


@dataclass(frozen=True, slots=True)
class OncePiece:
    """A slice on the clock: a node of a layer, or a part of the account that is no node's."""

    stream: str
    start_s: float
    end_s: float
    node: NodeTime | None
    name: str
    layer: int


def before(timeline: Timeline, stage: int) -> Iterator[OncePiece]:
    """Yield what a stage gathers before its first micro-batch, one behind the other; what hides runs beside it."""
    spent = timeline.spent[timeline.stages.cls[stage]].prepare
    nodes = _nodes(timeline, stage, Phase.PREPARE)
    booking = Booking.of(spent, [n for n, _ in nodes])
    yield from _row([n for n in nodes if not n[0].is_message], booking.passing_s, 0.0)
    yield from _row([n for n in nodes if n[0].is_message], booking.drawn_s, 0.0)


def behind(timeline: Timeline, stage: int) -> Iterator[OncePiece]:
    """Yield what a stage runs behind its last micro-batch; slices of a stream are in order.

    What it reduces is drawn one behind the other: first what hides behind micro-batches, and the exposed rest sticks
    out. The update starts in all stages at once, when the stage that has most to reduce is through: gradients are
    clipped by a norm over all of them.
    """
    spent = timeline.spent[timeline.stages.cls[stage]]
    last_s = float(timeline.stop_s[timeline.simulated.stage == stage].max())
    yield from _reduce(timeline, stage, spent.reduce, last_s)
    yield from _update(timeline, stage, spent.update, timeline.last_s + pace_once(list(timeline.spent)).reduce.time_s)


def _nodes(timeline: Timeline, stage: int, phase: Phase) -> list[tuple[NodeTime, int]]:
    """Nodes of a phase in all layers of a stage; what comes behind the backward phase begins with the last layer."""
    graph = timeline.answer.table.lowered.graph
    found: list[tuple[NodeTime, int]] = []
    for row in timeline.stages.chunks[stage]:
        for name, layer in zip(row.regions, row.layers, strict=True):
            found += [(n, layer) for n in once_of(graph.region(name), timeline.nodes[name], phase)]
    if phase is Phase.REDUCE:
        found = found[::-1]
        for name, times in timeline.answer.table.staging.sent(timeline.stages.cls[stage]).items():
            sent = once_of(graph.region(name), timeline.nodes[name], phase) if times[0] else []
            found += [(replace(n, time_s=n.time_s * float(times[0])), -1) for n in sent]
    return found


def _reduce(timeline: Timeline, stage: int, spent: Spent, last_s: float) -> Iterator[OncePiece]:
    nodes = _nodes(timeline, stage, Phase.REDUCE)
    booking = Booking.of(spent, [n for n, _ in nodes])
    messages = [n for n in nodes if n[0].is_message]
    out_s = sum(booking.passing_s(n) for n, _ in messages)
    whole_s = sum(booking.drawn_s(n) for n, _ in messages)
    yield from _row(messages, booking.drawn_s, max(last_s + out_s - whole_s, 0.0))
    rest = [n for n in nodes if not n[0].is_message]
    yield from _row(rest, booking.passing_s, last_s + out_s)
    end_s = last_s + out_s + sum(booking.passing_s(n) for n, _ in rest)
    yield from _extras(spent, [n for n, _ in nodes], end_s)


def _update(timeline: Timeline, stage: int, spent: Spent, start_s: float) -> Iterator[OncePiece]:
    """The optimizer waits for copies that show; copies up end with the update."""
    nodes = _nodes(timeline, stage, Phase.OPTIMIZER)
    booking = Booking.of(spent, [n for n, _ in nodes])
    extras = list(_extras(spent, [n for n, _ in nodes], start_s))
    begin = extras[-1].end_s if extras else start_s
    yield from extras
    yield from _row([n for n in nodes if not n[0].is_copy], booking.passing_s, begin)
    for stream, end_s in ((COPY_DOWN, begin), (COPY_UP, start_s + spent.time_s)):
        copies = [n for n in nodes if n[0].stream == stream]
        first = end_s - sum(n.time_s for n, _ in copies)
        yield from _row(copies, booking.drawn_s, max(first, 0.0))


def _row(
    nodes: Sequence[tuple[NodeTime, int]], seconds: Callable[[NodeTime], float], start_s: float
) -> Iterator[OncePiece]:
    """Nodes one behind the other, over all streams."""
    for node, layer in nodes:
        end_s = start_s + seconds(node)
        stream = node.stream if node.is_compute else node.stream + ONCE
        yield OncePiece(stream, start_s, end_s, node, "", layer)
        start_s = end_s


def _extras(spent: Spent, nodes: Sequence[NodeTime], start_s: float) -> Iterator[OncePiece]:
    """What the account has beside its nodes."""
    known = {n.part for n in nodes if not n.is_copy}
    for part, seconds in spent.exposed.items():
        if part not in known and seconds > 0.0:
            yield OncePiece(stream_of(part), start_s, start_s + seconds, None, EXTRA_NAMES.get(part, part), -1)
            start_s += seconds
