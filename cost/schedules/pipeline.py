"""The pipelined part of a step for a table of plans: seconds, the stage that sets the pace, and the bubble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass
from ...ir.schedules.closed.line import Line, one_number
from ...ir.schedules.kind import ClosedCase, PipelineShape, ScheduleKind
from ...ir.schedules.registry import SCHEDULES
from .closed.extrapolate import Steps, extrapolated_s, rounds_run
from .closed.rows import StageRuns, alike
from .tasks import Array, Index

# Of a plan, the place of its closed form, or one of these: it has a single stage, or its tasks are run.
_ALONE, _RUN = -2, -1


@dataclass(frozen=True, slots=True)
class ClassTimes:
    """Seconds of one micro-batch in stages of each class, all chunks together, each as (class, plan).

    Of a plan without a class, zeros. `send_s` is the latency of one message to a neighbour, either way.
    """

    forward_s: Array
    dgrad_s: Array
    wgrad_s: Array
    send_s: Array

    def of(self, plans: NDArray[np.intp]) -> ClassTimes:
        """Return the times of some plans."""
        return ClassTimes(*(a[:, plans] for a in (self.forward_s, self.dgrad_s, self.wgrad_s, self.send_s)))

    @property
    def busy_s(self) -> Array:
        """Seconds of one micro-batch."""
        return self.forward_s + self.dgrad_s + self.wgrad_s


@dataclass(frozen=True, slots=True)
class Paced:
    """The pipelined part of a step, plan by plan: total = m x micro-batch + bubble.

    Attributes:
        total_s: seconds from the first forward task to the end of the last backward task (of ZB-H2 and ZB-V, which go
            on to the next step stage by stage, from one step to the next).
        bubble_s: seconds in which the stage that sets the pace waits; never negative.
        pace: class of the stage that computes longest on a micro-batch.
        micro_batch_s: its seconds on one.
    """

    total_s: Array
    bubble_s: Array
    pace: NDArray[np.intp]
    micro_batch_s: Array

    @classmethod
    def of(cls, total_s: Array, micro_batch_s: Array, pace: NDArray[np.intp], num_micro_batches: Array) -> Paced:
        """Take apart what a step takes."""
        # Rounding in a closed form may leave the whole a hair below its parts.
        bubble_s = np.maximum(total_s - num_micro_batches * micro_batch_s, 0.0)
        return cls(num_micro_batches * micro_batch_s + bubble_s, bubble_s, pace, micro_batch_s)


@dataclass(frozen=True, slots=True)
class Pipelines:
    """The pipelines of a table of plans.

    Attributes:
        schedules: names of `SCHEDULES`, and the plans that each orders.
        times: of each class.
        rows: the class of every stage from the first on, of each distinct layout.
        which: the layout of each plan.
        num_chunks: chunks a stage, plan by plan.
        num_micro_batches: micro-batches a step, plan by plan.
    """

    schedules: Sequence[tuple[str, Index]]
    times: ClassTimes
    rows: Sequence[Sequence[int]]
    which: NDArray[np.intp]
    num_chunks: Array
    num_micro_batches: Array


@dataclass(frozen=True, slots=True)
class _Some:
    """Some plans of a table, and the column that gets the seconds of their steps."""

    plans: NDArray[np.intp]
    total_s: Array
    times: ClassTimes
    which: Index
    shape: PipelineShape
    rows: Sequence[Sequence[int]]


def pipeline_times(asked: Sequence[Pipelines]) -> list[Paced]:
    """Return how long the micro-batches of a step take in pipelines of stages that may differ, for each of some tables.

    A schedule without a closed form is run with few micro-batches and goes on from there in even steps. Neither takes
    longer to work out for more micro-batches, and with either no task that gets faster makes a step longer. The tasks
    of all tables are run together.

    >>> ones = np.ones((1, 1))
    >>> times, plan = ClassTimes(ones, ones, ones, ones * 0.0), np.zeros(1, dtype=int)
    >>> pipeline_times([Pipelines([("1f1b", plan)], times, [[0] * 4], plan, np.ones(1), np.full(1, 8.0))])[0].bubble_s
    array([9.])

    To run a schedule costs a few array operations a wave of tasks, however many plans there are: tables of a few plans
    each, as a search has them, take hardly longer together than one of them.
    """
    found, left = list[tuple[Array, Array, NDArray[np.intp], Array]](), dict[ScheduleKind, list[_Some]]()
    for one in asked:
        stages = np.array([len(row) for row in one.rows], dtype=np.float64)[one.which]
        micro_s, pace = _slowest(one.times, one.rows, one.which)
        shape = PipelineShape(one.num_micro_batches, stages, one.num_chunks)
        total_s = one.num_micro_batches * micro_s
        for name, plans in one.schedules:
            kind = SCHEDULES[name]
            cases = kind.closed() if kind.closed else ()
            # The first closed form that holds for a plan answers; plans with none are run, task by task.
            case, own = np.full(len(plans), _RUN), shape if len(plans) == len(stages) else shape.of(plans)
            for place in reversed(range(len(cases))):
                case[np.asarray(cases[place].holds(own))] = place
            case[stages[plans] == 1.0] = _ALONE
            if (is_closed := case >= 0).any():
                closed = plans[is_closed]
                part = _part(closed, one.times, one.which, shape)
                total_s[closed] = _closed_s(cases, case[is_closed], *part, one.rows)
            if len(run := plans[case == _RUN]):
                part = _part(run, one.times, one.which, shape)
                left.setdefault(kind, []).append(_Some(run, total_s, *part, one.rows))
        found.append((total_s, micro_s, pace, one.num_micro_batches))
    _run(left)
    return [Paced.of(*one) for one in found]


def _part(
    plans: NDArray[np.intp], times: ClassTimes, which: Index, shape: PipelineShape
) -> tuple[ClassTimes, Index, PipelineShape]:
    """Some plans of a table, or all."""
    return (times, which, shape) if len(plans) == len(which) else (times.of(plans), which[plans], shape.of(plans))


def _slowest(times: ClassTimes, rows: Sequence[Sequence[int]], which: Index) -> tuple[Array, NDArray[np.intp]]:
    """Return the most seconds of a micro-batch on any stage, and the first class that takes them, plan by plan."""
    # A layout has some classes of stages only; the others must not set its pace.
    busy = times.busy_s
    there = np.zeros((len(rows), len(busy)), dtype=bool)
    for k, classes in enumerate(rows):
        there[k, list(set(classes))] = True
    if not there.all():
        busy = np.where(there[which].T, busy, -np.inf)
    return busy.max(axis=0), busy.argmax(axis=0)


def _closed_s(
    cases: Sequence[ClosedCase],
    case: Index,
    times: ClassTimes,
    which: Index,
    shape: PipelineShape,
    rows: Sequence[Sequence[int]],
) -> Array:
    """The closed forms, of plans together whose rows of stages have equally many runs."""
    cut = np.full(len(which), -1.0)
    for place, one in enumerate(cases):
        cut = cut if one.cut is None else np.where(case == place, one.cut(shape), cut)
    found, messages = np.zeros(len(which)), bool(times.send_s.any())
    for some in alike([StageRuns.of(tuple(classes)) for classes in rows], which, cut.astype(np.int64), case):
        part = shape.of(some.plans)
        part = PipelineShape(part.m, part.p, one_number(part.v))
        # The stages of plans that are alike, with the times of one chunk.
        kinds, plans = some.kinds, some.plans
        seconds = np.stack(
            [times.forward_s[kinds, plans], times.dgrad_s[kinds, plans] + times.wgrad_s[kinds, plans]], 1
        )
        seconds *= 1.0 / part.v
        found[some.plans] = cases[some.label].seconds(
            Line.of(some.runs, seconds, times.send_s[kinds, plans] if messages else None), part
        )
    return found


def _run(left: Mapping[ScheduleKind, Sequence[_Some]]) -> None:
    """Run schedules: plans together with as many stages, chunks and, where it is small, micro-batches."""
    forms: dict[tuple[ScheduleKind, int, int, int], list[tuple[_Some, Index]]] = {}
    for kind, table in ((kind, table) for kind, tables in left.items() for table in tables):
        shape = table.shape
        held = np.where(shape.v == 1, kind.chunks, shape.v) * kind.copies
        each = np.where(shape.v > 1, shape.each, shape.p) if kind.interleaves else shape.p
        # Behind a few rounds a schedule repeats itself: each further micro-batch adds the same time, so that a run of
        # few says what many take.
        few = np.minimum(shape.m, rounds_run(kind) * each)
        met, form = np.unique(np.stack([shape.p, held, few]).astype(np.int64), axis=1, return_inverse=True)
        for k, (p, v, number) in enumerate(met.T.tolist()):
            forms.setdefault((kind, p, v, number), []).append((table, np.flatnonzero(form.reshape(-1) == k)))
    asked = list[Steps]()
    for (kind, p, v, number), parts in forms.items():
        chunks = [_chunk_times(table, plans, p) for table, plans in parts]
        chunk, m = (np.concatenate(column, axis=-1) for column in zip(*chunks, strict=True))
        chunk[:3] *= kind.copies / v
        asked.append(Steps(kind, chunk, m, number, v))
    for parts, seconds in zip(forms.values(), extrapolated_s(asked), strict=True):
        ends = np.cumsum([len(plans) for _, plans in parts])[:-1]
        for (table, plans), some in zip(parts, np.split(seconds, ends), strict=True):
            table.total_s[table.plans[plans]] = some


def _chunk_times(table: _Some, plans: Index, num_stages: int) -> tuple[Array, Array]:
    """Forward, dgrad, wgrad and send seconds of every stage of some plans, as (4, stage, plan), and micro-batches."""
    # Class by stage of every layout with so many stages.
    row = [row if len(row) == num_stages else [0] * num_stages for row in table.rows]
    kinds, times = np.array(row, dtype=np.int64).T[:, table.which[plans]], table.times
    parts = (times.forward_s, times.dgrad_s, times.wgrad_s, times.send_s)
    return np.stack([part[kinds, plans] for part in parts]), np.asarray(table.shape.of(plans).m)
