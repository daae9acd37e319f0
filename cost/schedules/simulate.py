"""Event simulation of one step of one plan: every task starts when its stage is free and its input has arrived."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.records import dataclass
from ...ir.schedules.kind import Kind
from .tasks import Array, Index, Schedule, SimulatedStep, StageTimes, schedule_of

# Steps that are run, one behind the other, until all stages take equally long from one to the next within so much; one
# has been enough for every time of stages that was tried.
MOST_STEPS, SETTLED = 8, 1e-12


def simulate(schedule: str, times: StageTimes, num_micro_batches: int) -> SimulatedStep:
    """Run one step of a schedule; stages and chunks are those of `times`.

    PlanError when the schedule cannot run so many micro-batches, stages or chunks.

    >>> times = StageTimes.of(np.ones(4), np.ones(4), np.ones(4))
    >>> simulate("1f1b", times, 8).step_s
    33.0
    """
    return run(schedule_of(schedule, times.num_stages, num_micro_batches, times.num_chunks), times)


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """The tasks of a schedule in units that start together, stage behind stage, and what each waits for.

    Attributes:
        stage: stage of each task.
        chunk: chunk of each task.
        micro_batch: micro-batch of each task.
        kind: kind of each task.
        unit: the unit of each task: itself, or itself and the joined one.
        first: the first unit of every stage, and the number of units.
        waits: up to two units whose results a unit needs, as (2, unit); -1 for none.
        sender: the task that sends what `waits` waits for, as (2, unit); -1 where nothing is sent.
    """

    stage: Index
    chunk: Index
    micro_batch: Index
    kind: Index
    unit: Index
    first: Index
    waits: Index
    sender: Index


def graph_of(schedule: Schedule) -> TaskGraph:
    """Link every task with the one whose result it needs."""
    lengths = [len(o) for o in schedule.orders]
    stage = np.repeat(np.arange(schedule.num_stages), lengths)
    chunk, micro, kind = (
        np.concatenate([getattr(o, n) for o in schedule.orders]) for n in ("chunk", "micro_batch", "kind")
    )
    joined = np.concatenate([o.joined for o in schedule.orders])
    behind = np.concatenate([[False], joined[:-1]])
    unit = np.cumsum(~behind) - 1
    starts = np.concatenate([[0], np.cumsum(lengths)])
    first = np.concatenate([unit, [unit[-1] + 1]])[starts]
    needs, sends = _needs(schedule, stage, chunk, micro, kind)
    waits, sender = np.full((2, first[-1]), -1), np.full((2, first[-1]), -1)
    slot = behind.astype(np.int64)
    waits[slot, unit] = np.where(needs >= 0, unit[needs], -1)
    sender[slot, unit] = np.where(sends, needs, -1)
    return TaskGraph(stage, chunk, micro, kind, unit, first, waits, sender)


def _needs(schedule: Schedule, stage: Index, chunk: Index, micro: Index, kind: Index) -> tuple[Index, Index]:
    """The task whose result each task needs, -1 for none, and whether it comes from another stage."""
    p, v, m = schedule.num_stages, schedule.num_chunks, schedule.num_micro_batches
    forward = kind == Kind.FORWARD
    weight = kind == Kind.WGRAD
    where = np.full((3, p, v, m), -1)
    phase = np.where(forward, 0, np.where(weight, 2, 1))
    where[phase, stage, chunk, micro] = np.arange(len(stage))
    from_stage, from_chunk = np.where(forward, schedule.before[:, stage, chunk], schedule.behind[:, stage, chunk])
    passed = np.where(from_stage >= 0, where[np.minimum(phase, 1), from_stage, from_chunk, micro], -1)
    # A backward task at the end of the pipeline needs its own forward task, one for weights its own backward task.
    own = where[np.maximum(phase - 1, 0), stage, chunk, micro]
    needs = np.where(weight | (~forward & (from_stage < 0)), own, passed)
    return needs, (from_stage >= 0) & (from_stage != stage) & ~weight


def run(schedule: Schedule, times: StageTimes) -> SimulatedStep:
    """Run one step of a schedule."""
    graph = graph_of(schedule)
    per_kind = np.stack([times.seconds(kind) for kind in Kind])
    task_s = per_kind[graph.kind, graph.stage, graph.chunk]
    unit_s = np.bincount(graph.unit, task_s).astype(np.float64)
    lag = lags(graph, times).tolist()
    end = _ends(graph, unit_s.tolist(), lag)
    # Of two joined tasks the first takes the first part of the time.
    begin = (np.array(end) - unit_s)[graph.unit]
    second = np.concatenate([[False], graph.unit[1:] == graph.unit[:-1]])
    before = np.concatenate([[0.0], task_s[:-1]])
    start_s = begin + np.where(second, before, 0.0)
    period_s = _period_s(graph, unit_s, lag, np.array(end)) if schedule.rolls else None
    return SimulatedStep(
        schedule, graph.stage, graph.chunk, graph.micro_batch, graph.kind, start_s, start_s + task_s, period_s
    )


def _period_s(graph: TaskGraph, unit_s: Array, lag: Sequence[Sequence[float]], end: Array) -> float:
    """Return the seconds from one step to the next where each stage goes on as soon as it is done.

    The step is run again, each stage from when it was done with the one before, until all stages take equally long
    from step to step. That time grows with each task's, as the longest cycle of what waits for what in the repeated
    step does (Baccelli et al., Synchronization and Linearity, theorem 3.23); the longest that a stage takes within one
    step alone is at most 0.002 % above it, but may grow when a task of another stage gets faster.
    """
    done = end[graph.first[1:] - 1]
    spans = done - (end - unit_s)[graph.first[:-1]]
    for _ in range(MOST_STEPS):
        clock = done - done.min()
        done = np.array(_ends(graph, unit_s.tolist(), lag, clock.tolist()))[graph.first[1:] - 1]
        spans = done - clock
        if spans.max() - spans.min() <= SETTLED * spans.max():
            break
    return float(spans.max())


def lags(graph: TaskGraph, times: StageTimes) -> Array:
    """Seconds that what a unit waits for is on its way, as (2, unit)."""
    task = graph.sender
    sent = np.where(
        graph.kind[task] == Kind.FORWARD,
        times.send_forward_s[graph.stage[task], graph.chunk[task]],
        times.send_backward_s[graph.stage[task], graph.chunk[task]],
    )
    return np.where(task >= 0, sent, 0.0)


def depths(graph: TaskGraph) -> list[int]:
    """Return the number of units on the longest chain that ends with each unit."""
    num = graph.waits.shape[1]
    nothing = [0.0] * num
    return [round(end) for end in _ends(graph, [1.0] * num, (nothing, nothing))]


def _ends(
    graph: TaskGraph, unit_s: Sequence[float], lag: Sequence[Sequence[float]], clock: Sequence[float] = ()
) -> list[float]:
    """When each unit ends. A stage runs from its time on `clock` until it must wait; what it waits for wakes it."""
    num = len(unit_s)
    unfinished = -1.0
    end = [unfinished] * num
    sleepers: dict[int, list[int]] = {}
    waits, other = graph.waits[0].tolist(), graph.waits[1].tolist()
    lag_s, other_lag_s = lag
    at, stop = graph.first[:-1].tolist(), graph.first[1:].tolist()
    free = list(clock) or [0.0] * len(at)
    awake = list(range(len(at)))
    while awake:
        stage = awake.pop()
        now = free[stage]
        for unit in range(at[stage], stop[stage]):
            need, second = waits[unit], other[unit]
            if need >= 0 and end[need] == unfinished:
                sleepers.setdefault(need, []).append(stage)
                break
            if second >= 0 and end[second] == unfinished:
                sleepers.setdefault(second, []).append(stage)
                break
            if need >= 0 and end[need] + lag_s[unit] > now:
                now = end[need] + lag_s[unit]
            if second >= 0 and end[second] + other_lag_s[unit] > now:
                now = end[second] + other_lag_s[unit]
            now += unit_s[unit]
            end[unit] = now
            if unit in sleepers:
                awake += sleepers.pop(unit)
        else:
            unit = stop[stage]
        at[stage], free[stage] = unit, now
    assert unfinished not in end, "stages wait for one another"
    return end
