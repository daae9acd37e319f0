"""A step of a pipeline schedule: tasks in the order of each stage, times, and the result of running them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass
from ...ir.schedules.kind import Kind, Places, Task
from ...ir.schedules.registry import check_schedule, schedule_kind

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Order:
    """The tasks of one stage, one behind the other.

    Attributes:
        chunk: chunk of the stage, 0 to v - 1.
        micro_batch: number of the micro-batch.
        kind: a `Kind`.
        joined: whether a task and the next one start together and hand on their results together (DualPipe).
    """

    chunk: Index
    micro_batch: Index
    kind: Index
    joined: NDArray[np.bool_]

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Order:
        """Put tasks into columns."""
        kind, micro_batch, chunk, joined = np.fromiter(chain.from_iterable(tasks), np.int64).reshape(-1, 4).T
        return cls(chunk, micro_batch, kind, joined > 0)

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The orders of all stages, and which chunk stands behind which.

    Attributes:
        name: the schedule's name.
        num_micro_batches: micro-batches a step.
        orders: one order a stage.
        place: number of each chunk in the order of the model, as (stage, chunk); each copy starts at 0.
        before: the stage and the chunk whose output each chunk takes, as (2, stage, chunk); -1 before the first.
        behind: those that take its output, in the same way; -1 behind the last.
        rolls: whether a stage starts its next step as soon as it is through with this one: the papers of ZB-H2 and ZB-V
            check the optimizer step afterwards instead of waiting for every stage.
    """

    name: str
    num_micro_batches: int
    orders: tuple[Order, ...]
    place: Index
    before: Index
    behind: Index
    rolls: bool = False

    @classmethod
    def of(
        cls, name: str, num_micro_batches: int, orders: tuple[Order, ...], places: Places, rolls: bool = False
    ) -> Schedule:
        """Link the chunks of each copy of the model by the stages that hold them."""
        chunks = [0] * len(orders)
        place, *links = np.full((5, len(orders), len(places) * len(places[0]) // len(orders)), -1)
        before, behind = np.stack(links).reshape(2, 2, *place.shape)
        for copy in zip(*places, strict=True):
            spots = []
            for number, stage in enumerate(copy):
                spots.append((stage, chunks[stage]))
                place[spots[-1]] = number
                chunks[stage] += 1
            for here, there in pairwise(spots):
                behind[:, *here], before[:, *there] = there, here
        return cls(name, num_micro_batches, orders, place, before, behind, rolls)

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline."""
        return len(self.orders)

    @property
    def num_chunks(self) -> int:
        """Chunks a stage."""
        return int(self.place.shape[1])

    @property
    def peak_in_flight(self) -> Array:
        """The most micro-batches whose activations each stage holds at once, in whole stages.

        Held from the start of the forward task to the end of the backward task, or of the one for weights.
        """
        # A chunk has 1/v of a stage's layers, and where chunks are copies, all.
        num_copies = np.count_nonzero(self.place == 0)
        return np.array([_peak(order) * num_copies / self.num_chunks for order in self.orders])


def _peak(order: Order) -> float:
    opens = order.kind == Kind.FORWARD
    closes = (order.kind == Kind.BACKWARD) | (order.kind == Kind.WGRAD)
    # What a task lets go of, it lets go of at its end: the next one sees it.
    held = np.cumsum(opens) - (np.cumsum(closes) - closes)
    return float(held.max(initial=0))


def schedule_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int = 1) -> Schedule:
    """Return the orders of a schedule of so many chunks a stage; of one that holds copies, one or all of them.

    UnknownNameError or PlanError as `check_schedule` raises them.
    """
    kind = schedule_kind(name)
    chunks = max(num_chunks // kind.copies, 1)
    check_schedule(name, num_micro_batches, num_stages, chunks)
    orders = (Order.of(kind.order(stage, num_stages, num_micro_batches, chunks)) for stage in range(num_stages))
    said = kind.alias if kind.alias and chunks > 1 else name
    return Schedule.of(said, num_micro_batches, tuple(orders), kind.placed(num_stages, chunks), kind.rolls)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of one micro-batch in every chunk of every stage, each as (stage, chunk).

    Attributes:
        forward_s: forward.
        dgrad_s: backward, gradients of activations only.
        wgrad_s: backward, gradients of weights only.
        send_forward_s: from the end of a chunk's forward task to the start of the next one's on another stage.
        send_backward_s: from the end of a chunk's backward task to the start of the previous one's there.
    """

    forward_s: Array
    dgrad_s: Array
    wgrad_s: Array
    send_forward_s: Array
    send_backward_s: Array

    @classmethod
    def of(cls, forward_s: Array, dgrad_s: Array, wgrad_s: Array, *, send_s: float | Array = 0.0) -> StageTimes:
        """Return times with one latency both ways; arrays are (stage, chunk), or (stage) for one chunk."""
        forward, dgrad, wgrad = (
            np.asarray(a, dtype=np.float64).reshape(len(a), -1) for a in (forward_s, dgrad_s, wgrad_s)
        )
        send = np.broadcast_to(np.asarray(send_s, dtype=np.float64), forward.shape)
        return cls(forward, dgrad, wgrad, send, send)

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline."""
        return int(self.forward_s.shape[0])

    @property
    def num_chunks(self) -> int:
        """Chunks a stage."""
        return int(self.forward_s.shape[1])

    def seconds(self, kind: Kind) -> Array:
        """Return the seconds of one kind of task, as (stage, chunk)."""
        parts = {Kind.FORWARD: self.forward_s, Kind.DGRAD: self.dgrad_s, Kind.WGRAD: self.wgrad_s}
        return self.dgrad_s + self.wgrad_s if kind is Kind.BACKWARD else parts[kind]


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A step of one plan, task by task, stage by stage in the order in which each stage runs them.

    Attributes:
        schedule: what was run.
        stage: stage of each task.
        chunk: its chunk.
        micro_batch: its micro-batch.
        kind: its `Kind`.
        start_s: when it starts.
        end_s: when it ends. Of two joined tasks the first shows the first part of their time, the other the rest.
        period_s: seconds from one step to the next where stages do not wait for one another; None where they do.
    """

    schedule: Schedule
    stage: Index
    chunk: Index
    micro_batch: Index
    kind: Index
    start_s: Array
    end_s: Array
    period_s: float | None = None

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline."""
        return self.schedule.num_stages

    @property
    def makespan_s(self) -> float:
        """Seconds from the first task of any stage to the end of the last."""
        return float(self.end_s.max() - self.start_s.min())

    @property
    def step_s(self) -> float:
        """Seconds a step: the makespan, or where stages do not wait for one another, from one step to the next."""
        return self.makespan_s if self.period_s is None else self.period_s

    @property
    def busy_s(self) -> Array:
        """Seconds in which each stage computes."""
        return np.bincount(self.stage, self.end_s - self.start_s, self.num_stages).astype(np.float64)

    @property
    def idle_s(self) -> Array:
        """Seconds of the step in which each stage waits."""
        return np.maximum(self.step_s - self.busy_s, 0.0)

    @property
    def peak_in_flight(self) -> Array:
        """The most micro-batches whose activations each stage holds at once, in whole stages."""
        return self.schedule.peak_in_flight
