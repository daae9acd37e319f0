"""Bytes of a device over a step: what is always held, kept activations of micro-batches in flight, temporaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...cost.memory.moments import moments_by_node
from ...cost.memory.states import kept_bytes
from ...cost.schedules.tasks import Array
from ...driver.estimate import Estimate, stage_memory
from ...ir.records import dataclass
from ...ir.schedules.kind import Kind
from .nodes import keyed
from .shape import TaskShape
from .stages import ChunkRow
from .timeline import Timeline

CHANGING = ("activations", "temporary")
CLOSES = (Kind.BACKWARD, Kind.WGRAD)


@dataclass(frozen=True, slots=True)
class RegionBytes:
    """Bytes of the regions of a graph, for one plan and one class of stages.

    Attributes:
        kept: what one run of a region keeps for its backward phase.
        nodes: what is alive while each node runs, by region and key, in running order.
    """

    kept: Mapping[str, float]
    nodes: Mapping[str, Mapping[int, float]]

    @classmethod
    def of(cls, answer: Estimate, regions: frozenset[str]) -> RegionBytes:
        """Evaluate them on a device that has some regions."""
        graph = answer.table.lowered.graph
        env = {k: float(v[0]) for k, v in answer.table.plans.columns.items()}
        nodes: dict[str, dict[int, float]] = {r.name: {} for r in graph.regions}
        for node, moment in moments_by_node(graph):
            if moment.regions <= regions:
                found = nodes[moment.region]
                found[node.key] = max(found.get(node.key, 0.0), float(moment.num_bytes.evaluate(env)))
        return cls({r.name: float(kept_bytes(r).evaluate(env)) for r in graph.regions}, nodes)


@dataclass(frozen=True, slots=True)
class Point:
    """Bytes from a moment on: kept activations and temporaries, with the region and the node that run (-1: any)."""

    at_s: float
    activations: float
    temporary: float
    region: str = ""
    place: int = -1
    key: int = -1

    @property
    def num_bytes(self) -> float:
        """What changes, in all."""
        return self.activations + self.temporary


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Kept activations and temporaries inside one task, in seconds from its start.

    Attributes:
        runs: a point for each run of a region, at its peak.
        nodes: a point for each node that computes.
        peak: the largest of `runs`, as if it lasted the whole task.
        kept: what the task's chunk keeps of one micro-batch.

    Activations count from what other micro-batches keep.
    """

    runs: tuple[Point, ...]
    nodes: tuple[Point, ...]
    peak: Point
    kept: float


@dataclass(frozen=True, slots=True)
class StageMemory:
    """One stage over the step.

    Attributes:
        steady: bytes by part that do not change.
        reserved: what software holds on top.
        full: for each task, kept activations of all micro-batches in flight, its own in full.
        curves: the curve of each task.
        peak: the most bytes in all that the account of memory has.
        rest: temporaries at the end of a backward task that no node has: copies of gradients.
    """

    steady: Mapping[str, float]
    full: Array
    curves: Sequence[MemoryCurve]
    peak: float
    rest: float

    def highest(self) -> tuple[int, Point]:
        """Return the task in which the most is held, and when in it."""
        totals = np.array([f - c.kept + c.peak.num_bytes for f, c in zip(self.full, self.curves, strict=True)])
        best = int(totals.argmax())
        if self.rest > totals[best] - self.full[best]:
            return best, Point(np.inf, self.curves[best].kept, self.rest)
        return best, self.curves[best].peak


class MemoryBook:
    """The memory of the stages of a timeline; what stages of a class share is made once."""

    def __init__(self, timeline: Timeline) -> None:
        """Make nothing yet."""
        self._timeline = timeline
        self._alive: dict[int, RegionBytes] = {}
        self._curves: dict[tuple[int, ChunkRow, Kind], MemoryCurve] = {}
        self._scales: dict[int, float] = {}

    def parts(self, cls: int) -> Mapping[str, float]:
        """Return bytes by part of the fullest stage of a class, as they are reported."""
        return {k: float(v[0]) for k, v in stage_memory(self._timeline.answer.table, cls).items()}

    def fullest(self) -> int:
        """Return the stage whose memory is reported."""
        shown = self._timeline.stages.shown(alone=False)
        return max(shown, key=lambda stage: sum(self.parts(self._timeline.stages.cls[stage]).values()))

    def stage(self, stage: int) -> StageMemory:
        """Return the memory of a stage."""
        stages = self._timeline.stages
        cls = stages.cls[stage]
        parts = self.parts(cls)
        scale = self._scale(cls, parts["activations"])
        order = stages.schedule.orders[stage]
        curves = [self._curve(stage, int(c), Kind(int(k)), scale) for c, k in zip(order.chunk, order.kind, strict=True)]
        most = max((c.peak.num_bytes - c.kept for c in curves), default=0.0)
        steady = {part: b for part, b in parts.items() if part not in CHANGING}
        rest = parts["temporary"] if parts["temporary"] > most + 1.0 else 0.0
        return StageMemory(steady, self._full(stage) * scale, curves, sum(parts.values()), rest)

    def _scale(self, cls: int, activations: float) -> float:
        """Kept activations that the account has for a byte that the schedule has: 1 where chunks are alike."""
        if cls not in self._scales:
            most = float(self._full(self._timeline.stages.cls.index(cls)).max(initial=0.0))
            self._scales[cls] = activations / most if most > 0.0 else 0.0
        return self._scales[cls]

    def _full(self, stage: int) -> Array:
        """Bytes kept in each task of a stage: from the start of a forward task to the end of the last that reads."""
        stages = self._timeline.stages
        order, alive = stages.schedule.orders[stage], self._of(stages.cls[stage])
        kept = np.array([sum(alive.kept[name] for name in row.regions) for row in stages.chunks[stage]])[order.chunk]
        opens = np.where(order.kind == Kind.FORWARD, kept, 0.0)
        closes = np.where(np.isin(order.kind, CLOSES), kept, 0.0)
        return np.asarray(np.cumsum(opens) - (np.cumsum(closes) - closes))

    def _of(self, cls: int) -> RegionBytes:
        if cls not in self._alive:
            stages = self._timeline.stages
            chunks = stages.chunks[stages.cls.index(cls)]
            regions = frozenset(name for row in chunks for name in row.regions)
            self._alive[cls] = RegionBytes.of(self._timeline.answer, regions)
        return self._alive[cls]

    def _curve(self, stage: int, chunk: int, kind: Kind, scale: float) -> MemoryCurve:
        stages = self._timeline.stages
        key = (stages.cls[stage], stages.chunks[stage][chunk], kind)
        if key not in self._curves:
            shape = self._timeline.shape(stage, chunk, kind)
            self._curves[key] = _curve(shape, self._of(key[0]), self._timeline, scale)
        return self._curves[key]


def _curve(shape: TaskShape, alive: RegionBytes, timeline: Timeline, scale: float) -> MemoryCurve:
    """Follow one task region by region: what its micro-batch keeps there grows forward and shrinks backward."""
    kept = [alive.kept[run.region] for run in shape.runs]
    runs: list[Point] = []
    nodes: list[Point] = []
    for k, run in enumerate(shape.runs):
        before = scale * _before(kept, k, shape.kind)
        made = []
        for at_s, key, held in _steps(timeline, run.region, shape, k, alive.nodes[run.region]):
            # Of what is alive in a region, what is kept counts as activations.
            mine = min(kept[k], held)
            made.append(Point(at_s, before + scale * mine, held - mine, run.region, k, key))
        nodes += made
        if made:
            top = max(made, key=lambda p: p.num_bytes)
            runs.append(Point(run.start_s, top.activations, top.temporary, run.region, k, top.key))
    whole = scale * sum(kept)
    # The moment of most bytes; at least what is kept in the end.
    found = max(nodes, key=lambda p: p.num_bytes, default=None)
    return MemoryCurve(
        tuple(runs),
        tuple(nodes),
        found if found is not None and found.num_bytes >= whole else Point(shape.time_s, whole, 0.0),
        whole,
    )


def _before(kept: Sequence[float], place: int, kind: Kind) -> float:
    """What a micro-batch keeps in the other runs of its chunk while one runs."""
    if kind is Kind.FORWARD:
        return sum(kept[:place])
    return sum(kept[place + 1 :]) if kind is Kind.BACKWARD else sum(kept) - kept[place]


def _steps(
    timeline: Timeline, region: str, shape: TaskShape, place: int, alive: Mapping[int, float]
) -> list[tuple[float, int, float]]:
    """Return start, key and bytes of the nodes that compute in one run; other nodes count with the next that does."""
    start = {p.node.key: p.start_s for p in shape.pieces if p.run == place and p.node is not None and p.node.is_compute}
    if not start:
        return []
    found: list[tuple[float, int, float]] = []
    held = 0.0
    for key in (n.key for n in keyed(timeline.answer.table.lowered.graph.region(region), shape.kind, timeline.late)):
        held = max(held, alive.get(key, 0.0))
        if key in start:
            found.append((start[key], key, held))
            held = 0.0
    if held > found[-1][2]:
        found[-1] = (*found[-1][:2], held)
    return found


__all__ = ["CHANGING", "CLOSES", "MemoryBook", "MemoryCurve", "Point", "RegionBytes", "StageMemory"]
