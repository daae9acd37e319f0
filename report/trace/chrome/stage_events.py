"""The events of one stage: its tasks with what is inside them, messages to and from others, and its memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ....cost.schedules.tasks import Index
from ....ir.records import dataclass
from ....ir.schedules.kind import Kind
from ..levels import DetailLevel, Levels
from ..memory import CHANGING, CLOSES, Point, StageMemory
from ..once import OncePiece, before, behind
from ..shape import StreamSlice, TaskShape
from ..timeline import Timeline, receiver
from .events import arrow, counter, nanoseconds, process
from .tracks import SENDS, TASKS, Slice, Tracks, number_of, received_from

_LETTERS = {Kind.FORWARD: "F", Kind.BACKWARD: "B", Kind.DGRAD: "D", Kind.WGRAD: "W"}
_WORDS = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.DGRAD: "backward, activations",
    Kind.WGRAD: "backward, weights",
}


@dataclass(frozen=True, slots=True)
class Links:
    """Who waits for whom: the task of another stage that takes a task's result, and the one that a task waits for.

    -1 where there is none. Arrows bear the number of the task that sends.
    """

    to: Index
    source: Index

    @classmethod
    def of(cls, timeline: Timeline) -> Links:
        """Link the tasks of a timeline."""
        s, schedule = timeline.simulated, timeline.stages.schedule
        phase = np.where(s.kind == Kind.FORWARD, 0, np.where(s.kind == Kind.WGRAD, 2, 1))
        where = np.full((3, schedule.num_stages, schedule.num_chunks, schedule.num_micro_batches), -1)
        where[phase, s.stage, s.chunk, s.micro_batch] = np.arange(len(s.stage))
        to, source = np.full(len(s.stage), -1), np.full(len(s.stage), -1)
        for row, kind in enumerate((Kind.FORWARD, Kind.BACKWARD)):
            for stage, chunk in np.ndindex(*schedule.place.shape):
                taker = receiver(schedule, stage, chunk, kind)
                if taker is not None:
                    mine, theirs = where[row, stage, chunk], where[row, taker[0], taker[1]]
                    to[mine[mine >= 0]] = theirs[mine >= 0]
        source[to[to >= 0]] = np.flatnonzero(to >= 0)
        return cls(to, source)


class StageEvents:
    """The events of one stage of a timeline."""

    def __init__(
        self, timeline: Timeline, links: Links, levels: Levels, shown: Sequence[int], stage: int, memory: StageMemory
    ) -> None:
        """Take what is shown; nothing is made yet."""
        self._timeline, self._links, self._levels, self._stage = timeline, links, levels, stage
        self._shown, self._memory = frozenset(shown), memory
        self._tracks = Tracks(stage + 1)
        self._last_held: Mapping[str, float] = {}
        self._start_s, self._stop_s = timeline.start_s, timeline.stop_s

    def all(self, name: str) -> Iterator[str]:
        """Yield them, under the name of the stage."""
        tasks = np.flatnonzero(self._timeline.simulated.stage == self._stage).tolist()
        yield from process(self._tracks.pid, name, self._tracks.pid)
        yield from self._held(0.0, 0.0, 0.0)
        yield from self._once(before(self._timeline, self._stage))
        for number, task in enumerate(tasks):
            yield from self._task(task, number)
        yield from self._held(self._stop_s[tasks[-1]], 0.0, 0.0)
        yield from self._once(behind(self._timeline, self._stage))
        yield from self._received(tasks)

    def _task(self, task: int, number: int) -> Iterator[str]:
        """One task as deep as its micro-batch is shown."""
        sim = self._timeline.simulated
        micro, chunk, kind = int(sim.micro_batch[task]), int(sim.chunk[task]), Kind(int(sim.kind[task]))
        level = self._levels.of[micro]
        if level is DetailLevel.NOTHING:
            return
        shape, layers = self._timeline.shape(self._stage, chunk, kind), self._layers(chunk, kind)
        start, stop = float(self._start_s[task]), float(self._stop_s[task])
        where = f'"micro_batch":{micro},"chunk":{chunk}'
        phase = f'{where},"phase":"{_WORDS[kind]}"'
        title = f"{_LETTERS[kind]}{micro}" + (f" chunk {chunk}" if sim.schedule.num_chunks > 1 else "")
        inside = self._runs(shape, layers, start, phase) if level >= DetailLevel.LAYER else ()
        yield from self._tracks.add(TASKS, Slice(title, "task", start, stop, phase), inside)
        if level is DetailLevel.NODE:
            yield from self._nodes(shape, layers, start, where)
        if level >= DetailLevel.TASK:
            yield from self._sent(task, shape)
            yield from self._curve(task, number, kind, level)

    def _layers(self, chunk: int, kind: Kind) -> tuple[int, ...]:
        layers = self._timeline.stages.chunks[self._stage][chunk].layers
        return layers if kind is Kind.FORWARD else layers[::-1]

    def _runs(self, shape: TaskShape, layers: tuple[int, ...], start_s: float, where: str) -> list[Slice]:
        pace = self._timeline.pace
        return [
            Slice(
                run.region,
                "layer",
                start_s + run.start_s * pace,
                start_s + run.end_s * pace,
                f"{_layer(layers[run.place])}{where}",
            )
            for run in shape.runs
        ]

    def _nodes(self, shape: TaskShape, layers: tuple[int, ...], start_s: float, where: str) -> Iterator[str]:
        for piece in shape.pieces:
            yield from self._tracks.add(
                piece.stream, self._piece(piece, layers[piece.run] if piece.run >= 0 else -1, start_s, where)
            )

    def _piece(self, piece: StreamSlice, layer: int, start_s: float, where: str) -> Slice:
        pace, node = self._timeline.pace, piece.node
        first, last = start_s + piece.start_s * pace, start_s + piece.end_s * pace
        if node is None:
            return Slice(piece.name, "other", first, last, f"{_layer(layer)}{where}")
        args = f"{_module(node.scope, layer)}{_layer(layer)}{where},{node.args}"
        return Slice(node.name, "comm" if node.is_message else "compute", first, last, args)

    def _sent(self, task: int, shape: TaskShape) -> Iterator[str]:
        """The message at the end of a task, and the start of an arrow to who takes it."""
        if self._links.to[task] < 0:
            return
        taker = int(self._timeline.simulated.stage[self._links.to[task]])
        yield from self._message(SENDS, "send", task, shape, f'"to_stage":{taker}')
        if taker in self._shown:
            yield from self._arrow(SENDS, task, shape, starts=True)

    def _received(self, tasks: Sequence[int]) -> Iterator[str]:
        """What other stages send, on a stream a sender, and the end of each arrow."""
        sim = self._timeline.simulated
        sources = [int(self._links.source[t]) for t in tasks if self._links.source[t] >= 0]
        for source in sorted(sources, key=lambda k: (int(sim.stage[k]), float(self._stop_s[k]))):
            micro, chunk, sender = int(sim.micro_batch[source]), int(sim.chunk[source]), int(sim.stage[source])
            if self._levels.of[micro] < DetailLevel.TASK:
                continue
            shape = self._timeline.shape(sender, chunk, Kind(int(sim.kind[source])))
            yield from self._message(received_from(sender), "receive", source, shape, f'"micro_batch":{micro}')
            if sender in self._shown:
                yield from self._arrow(received_from(sender), source, shape, starts=False)

    def _message(self, stream: str, name: str, task: int, shape: TaskShape, args: str) -> Iterator[str]:
        stop_s = float(self._stop_s[task])
        start_s = stop_s - shape.send_s * self._timeline.pace
        yield from self._tracks.add(stream, Slice(name, "comm", start_s, stop_s, args))

    def _arrow(self, stream: str, task: int, shape: TaskShape, starts: bool) -> Iterator[str]:
        """Both ends of an arrow lie in the middle of the message, which is drawn on both sides at the same time."""
        half_s = 0.5 * shape.send_s * self._timeline.pace
        if nanoseconds(half_s) > 0:
            at = nanoseconds(float(self._stop_s[task]) - half_s)
            yield arrow(self._tracks.pid, number_of(stream), task, at, starts)

    def _curve(self, task: int, number: int, kind: Kind, level: DetailLevel) -> Iterator[str]:
        """Memory inside one task, and what is left behind it."""
        curve, pace = self._memory.curves[number], self._timeline.pace
        start_s, stop_s = float(self._start_s[task]), float(self._stop_s[task])
        full = float(self._memory.full[number])
        others = full - curve.kept
        points = {DetailLevel.NODE: curve.nodes, DetailLevel.LAYER: curve.runs}.get(level, ())
        for p in points or (Point(0.0, curve.peak.activations, curve.peak.temporary),):
            yield from self._held(start_s + p.at_s * pace, others + p.activations, p.temporary)
        closes = kind in CLOSES
        if closes and self._memory.rest:
            yield from self._held(0.5 * (start_s + stop_s), full, self._memory.rest)
        yield from self._held(stop_s, others if closes else full, 0.0)

    def _held(self, at_s: float, activations: float, temporary: float) -> Iterator[str]:
        """Counters from a moment on, where they change."""
        changing = dict(zip(CHANGING, (activations, temporary), strict=True))
        parts = {part: b for part, b in {**self._memory.steady, **changing}.items() if b or part in CHANGING}
        if parts == self._last_held:
            return
        self._last_held = parts
        at = nanoseconds(at_s)
        yield counter(self._tracks.pid, "memory by part", at, parts)
        yield counter(self._tracks.pid, "memory", at, {"bytes": sum(parts.values())})

    def _once(self, pieces: Iterable[OncePiece]) -> Iterator[str]:
        for p in pieces:
            name, args, category = p.name, _layer(p.layer).rstrip(","), "other"
            if p.node is not None:
                name, args = p.node.name, f"{_module(p.node.scope, p.layer)}{_layer(p.layer)}{p.node.args}"
                category = "comm" if p.node.is_message else "compute"
            yield from self._tracks.add(p.stream, Slice(name, category, p.start_s, p.end_s, args))


def _layer(layer: int) -> str:
    return f'"layer":{layer},' if layer >= 0 else ""


def _module(scope: str, layer: int) -> str:
    """The module path with the number of the layer in it."""
    path = scope.replace("*", str(layer), 1) if layer >= 0 else scope
    return f'"module":{json.dumps(path)},' if path else ""
