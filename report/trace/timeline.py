"""A step on the clock: when every task of every stage runs, so that the last of them ends when the roll-up says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ...cost.schedules.simulate import run
from ...cost.schedules.tasks import Array, Schedule, SimulatedStep, StageTimes
from ...cost.step.split_backward import weight_gradients
from ...driver.estimate import Estimate
from ...ir.graph import Region
from ...ir.records import dataclass
from ...ir.schedules.kind import Kind
from .nodes import Late, NodeTime, node_times, nodes_of
from .shape import Booking, TaskEnds, TaskShape, draw
from .spent import Spent, StageSpent, pace_once, stages_spent
from .stages import ChunkRow, Stages, stages_of

# Class of stages, chunk, kind of task, what it exchanges with other stages.
ShapeKey: TypeAlias = tuple[int, ChunkRow, Kind, TaskEnds]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step of one plan.

    Attributes:
        answer: the estimate.
        stages: the stages and their schedule.
        spent: the account of each class of stages.
        nodes: the priced nodes.
        late: nodes that only lead to gradients of weights, by region and key.
        shapes: the task of each (class, chunk row, kind, what it exchanges).
        simulated: the tasks of the micro-batches, from 0.
        pipeline_s: when the first task starts.
        pace: seconds on this timeline for one of the simulation.
    """

    answer: Estimate
    stages: Stages
    spent: Sequence[StageSpent]
    nodes: Mapping[str, Mapping[int, NodeTime]]
    late: Late
    shapes: Mapping[ShapeKey, TaskShape]
    simulated: SimulatedStep
    pipeline_s: float
    pace: float

    @property
    def start_s(self) -> Array:
        """When each task starts."""
        return self.pipeline_s + self.simulated.start_s * self.pace

    @property
    def stop_s(self) -> Array:
        """When each task ends."""
        return self.pipeline_s + self.simulated.end_s * self.pace

    @property
    def last_s(self) -> float:
        """When the last task ends."""
        return float(self.stop_s.max())

    @property
    def skew_s(self) -> float:
        """How far stages that do not wait for one another between steps are apart: by that the last one ends later."""
        return (self.simulated.makespan_s - self.simulated.step_s) * self.pace

    @property
    def end_s(self) -> float:
        """When the step ends on its last stage."""
        return self.answer.metrics["step_time_s"] + self.skew_s

    def shape(self, stage: int, chunk: int, kind: Kind) -> TaskShape:
        """Return what a task looks like."""
        return self.shapes[_key(self.stages, stage, chunk, kind)]


def timeline_of(answer: Estimate) -> Timeline:
    """Lay an estimate on the clock.

    Tasks take what the roll-up books for them, the simulation of the schedule says when they start, and what lies
    between the gather before the first micro-batch and the reduction behind the last one is stretched by as much as the
    closed form of the roll-up differs from the simulation.
    """
    stages, nodes = stages_of(answer), node_times(answer)
    spent = stages_spent(answer, nodes)
    late = weight_gradients(answer.table.lowered.graph)
    shapes = _Shapes(answer.table.lowered.graph.by_name, nodes, late).of(stages, spent)
    simulated = run(stages.schedule, _times(stages, shapes))
    once = pace_once(list(spent))
    between_s = answer.metrics["step_time_s"] - once.once_s
    pace = between_s / simulated.step_s if simulated.step_s > 0.0 else 1.0
    return Timeline(answer, stages, spent, nodes, late, shapes, simulated, once.prepare.time_s, pace)


def receiver(schedule: Schedule, stage: int, chunk: int, kind: Kind) -> tuple[int, int] | None:
    """Return the stage and chunk that wait for a task's result; None where no other stage does."""
    if kind is Kind.WGRAD:
        return None
    links = schedule.behind if kind is Kind.FORWARD else schedule.before
    there, its_chunk = links[:, stage, chunk].tolist()
    return None if there in (-1, stage) else (there, its_chunk)


def sender(schedule: Schedule, stage: int, chunk: int, kind: Kind) -> tuple[int, int] | None:
    """Return the stage and chunk whose result a task waits for; None where no other stage has it."""
    if kind is Kind.WGRAD:
        return None
    # What goes forward comes from where gradients go back to.
    return receiver(schedule, stage, chunk, Kind.BACKWARD if kind is Kind.FORWARD else Kind.FORWARD)


def _key(stages: Stages, stage: int, chunk: int, kind: Kind) -> ShapeKey:
    one = stages.schedule, stage, chunk, kind
    ends = TaskEnds(sender(*one) is not None, receiver(*one) is not None)
    return stages.cls[stage], stages.chunks[stage][chunk], kind, ends


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Draws tasks from the regions of a graph and the times of their nodes."""

    regions: Mapping[str, Region]
    nodes: Mapping[str, Mapping[int, NodeTime]]
    late: Late

    def of(self, stages: Stages, spent: Sequence[StageSpent]) -> Mapping[ShapeKey, TaskShape]:
        """Draw every distinct task once."""
        kinds = [Kind(int(k)) for k in np.unique(np.concatenate([o.kind for o in stages.schedule.orders]))]
        bookings = {cls: self._bookings(spent[cls], stages, cls) for cls in sorted(set(stages.cls))}
        places = [(stage, chunk) for stage, chunks in enumerate(stages.chunks) for chunk in range(len(chunks))]
        found: dict[ShapeKey, TaskShape] = {}
        for key in (_key(stages, *place, kind) for place in places for kind in kinds):
            if key not in found:
                booking = bookings[key[0]][key[2] is not Kind.FORWARD]
                _, row, kind, ends = key
                names = row.regions if kind is Kind.FORWARD else row.regions[::-1]
                found[key] = draw(
                    [(name, self._run(name, kind)) for name in names], kind, booking, self._border(row, kind), ends
                )
        return found

    def _run(self, name: str, kind: Kind) -> list[NodeTime]:
        return nodes_of(self.regions[name], self.nodes[name], kind, self.late)

    def _border(self, row: ChunkRow, kind: Kind) -> list[NodeTime]:
        if not row.border or kind is Kind.WGRAD:
            return []
        return self._run(row.border, Kind.FORWARD if kind is Kind.FORWARD else Kind.BACKWARD)

    def _bookings(self, spent: StageSpent, stages: Stages, cls: int) -> tuple[Booking, Booking]:
        """Return what the account of a class makes of the nodes of its forward and of its backward phase."""
        chunks = stages.chunks[stages.cls.index(cls)]
        names = [name for chunk in chunks for name in chunk.regions]

        def booking(account: Spent, kind: Kind) -> Booking:
            inside = [n for name in names for n in self._run(name, kind)]
            return Booking.of(account, [*inside, *(n for chunk in chunks for n in self._border(chunk, kind))])

        return booking(spent.forward, Kind.FORWARD), booking(spent.backward, Kind.BACKWARD)


def _times(stages: Stages, shapes: Mapping[ShapeKey, TaskShape]) -> StageTimes:
    """Return the seconds of every task, as (stage, chunk)."""
    split = any(key[2] is Kind.DGRAD for key in shapes)

    def seconds(kind: Kind) -> Array:
        def of(stage: int, chunk: int) -> float:
            key = _key(stages, stage, chunk, kind)
            return shapes[key].time_s if key in shapes else 0.0

        return np.array([[of(s, c) for c in range(len(chunks))] for s, chunks in enumerate(stages.chunks)])

    back = Kind.DGRAD if split else Kind.BACKWARD
    return StageTimes.of(seconds(Kind.FORWARD), seconds(back), seconds(Kind.WGRAD))
