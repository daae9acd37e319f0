"""The pipelined part of a step for a table of plans: seconds, the stage that sets the pace, and the bubble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...ir.plan.layout.pipelines import BIDIRECTIONAL, INTERLEAVED, V_SHAPED
from ...ir.sizes.expr import Num
from .closed.extrapolate import extrapolated_s, first_rounds
from .closed.forms import gpipe_s, one_f_one_b_s
from .closed.line import Line
from .closed.rounds import interleaved_s
from .closed.rows import Alike, Row, alike
from .tasks import Array, Index

Flags = NDArray[np.bool_]

_CLOSED = ("gpipe", "1f1b")
# What steps with a closed form have in common: a single stage, or on top of the second, 1 for few micro-batches and 2
# for interleaving.
_ONE_STAGE, _PLAIN = 0, 1
# From so many rounds of p micro-batches on, interleaved steps differ in nothing but turns of one stage.
_ROUNDS = 7.0
# Plans that are run at a time.
_AT_ONCE = 4096


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

    def busy_s_of(self, kinds: Index, plans: NDArray[np.intp]) -> Array:
        """Return seconds of one micro-batch in some classes of some plans."""
        return np.asarray(self.forward_s[kinds, plans] + self.dgrad_s[kinds, plans] + self.wgrad_s[kinds, plans])


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


def pipeline_time(
    schedule: str,
    times: ClassTimes,
    rows: Sequence[Sequence[int]],
    which: NDArray[np.intp],
    num_chunks: Array,
    num_micro_batches: Array,
) -> Paced:
    """Return how long the micro-batches of a step take in a pipeline of stages that may differ.

    Args:
        schedule: one of `SCHEDULES`; `1f1b` with chunks is the interleaved one.
        times: of each class.
        rows: the class of every stage from the first on, of each distinct layout.
        which: the layout of each plan.
        num_chunks: chunks a stage, plan by plan.
        num_micro_batches: micro-batches a step, plan by plan.

    1F1B, interleaved 1F1B in rounds of p and GPipe have closed forms; the zero-bubble schedules, DualPipe and other
    rounds are run with few micro-batches and go on from there in even steps. Neither takes longer to work out for more
    micro-batches.

    >>> ones = np.ones((1, 1))
    >>> times = ClassTimes(ones, ones, ones, ones * 0.0)
    >>> pipeline_time("1f1b", times, [[0] * 4], np.zeros(1, dtype=int), np.ones(1), np.full(1, 8.0)).bubble_s
    array([9.])
    """
    micro_s, pace = _slowest(times, rows, which)
    closed = _has_form(schedule, rows, which, num_chunks, num_micro_batches)
    total_s = np.zeros(len(which))
    for made, plans in ((_closed_s, np.flatnonzero(closed)), (_run_s, np.flatnonzero(~closed))):
        if len(plans):
            some = times if len(plans) == len(which) else times.of(plans)
            total_s[plans] = made(schedule, some, rows, which[plans], num_chunks[plans], num_micro_batches[plans])
    bubble_s = np.maximum(total_s - num_micro_batches * micro_s, 0.0)
    return Paced(num_micro_batches * micro_s + bubble_s, bubble_s, pace, micro_s)


def _has_form(schedule: str, rows: Sequence[Sequence[int]], which: Index, chunks: Array, micro: Array) -> Flags:
    """Whether the time of a plan has a closed form: with chunks, where every round is one micro-batch a stage."""
    if schedule not in _CLOSED:
        return np.zeros(len(which), dtype=bool)
    stages = np.array([len(row) for row in rows], dtype=np.float64)[which]
    return np.asarray((chunks == 1.0) | (micro % stages == 0.0))


def _slowest(times: ClassTimes, rows: Sequence[Sequence[int]], which: Index) -> tuple[Array, NDArray[np.intp]]:
    """Return the most seconds of a micro-batch on any stage, and the first class that takes them, plan by plan."""
    busy = times.busy_s
    there = np.zeros((len(rows), len(busy)), dtype=bool)
    for k, classes in enumerate(rows):
        there[k, list(set(classes))] = True
    if not there.all():
        busy = np.where(there[which].T, busy, -np.inf)
    return busy.max(axis=0), busy.argmax(axis=0)


def _closed_s(
    schedule: str, times: ClassTimes, rows: Sequence[Sequence[int]], which: Index, num_chunks: Array, micro: Array
) -> Array:
    """The closed forms, of plans together whose rows of stages have equally many runs."""
    row = [Row.of(tuple(classes)) for classes in rows]
    stages = np.array([r.num_stages for r in row], dtype=np.float64)[which]
    few, loops = np.zeros(len(which), dtype=bool), np.zeros(len(which), dtype=bool)
    cut = np.full(len(which), -1.0)
    if schedule == "1f1b":
        loops = (num_chunks > 1.0) & (stages > 1.0)
        few = np.where(loops, micro < 2.0 * stages, micro <= stages) & (stages > 1.0)
        cut = np.where(few, np.where(loops, (stages - 1.0) // 2.0, np.maximum(stages - micro, 0.0)), cut)
    label = np.where(stages == 1.0, _ONE_STAGE, _PLAIN + 2 * loops + few)
    found, messages = np.zeros(len(which)), bool(times.send_s.any())
    for some in alike(row, which, cut.astype(np.int64), label):
        plans = some.plans
        found[plans] = _form_s(schedule, some, times, messages, num_chunks[plans], micro[plans])
    return found


def _form_s(schedule: str, some: Alike, times: ClassTimes, messages: bool, chunks: Array, micro: Array) -> Array:
    """The form of plans that are alike."""
    if some.label == _ONE_STAGE:
        return np.asarray(micro * times.busy_s_of(some.kinds, some.plans)[0])
    line = _line(some, times, messages, _one(chunks))
    if schedule == "gpipe":
        return gpipe_s(line, micro)
    loops, few = divmod(some.label - _PLAIN, 2)
    if not loops:
        return one_f_one_b_s(line, micro, bool(few))
    rounds = np.clip(micro // some.runs.num_stages, 1.0, _ROUNDS)
    return interleaved_s(line, micro, _one(chunks), _one(rounds))


def _line(some: Alike, times: ClassTimes, messages: bool, chunks: Num) -> Line:
    """The stages of plans that are alike, with the times of one chunk."""
    kinds, plans = some.kinds, some.plans
    seconds = np.stack([times.forward_s[kinds, plans], times.dgrad_s[kinds, plans] + times.wgrad_s[kinds, plans]], 1)
    seconds *= 1.0 / chunks
    return Line.of(some.runs, seconds, times.send_s[kinds, plans] if messages else None)


def _one(values: Array) -> Num:
    """One number where all are equal: what all plans have in common is worked out once."""
    return float(values[0]) if (values == values[0]).all() else values


def _run_s(
    schedule: str, times: ClassTimes, rows: Sequence[Sequence[int]], which: Index, chunks: Array, num_micro: Array
) -> Array:
    """Schedules that are run: plans together with as many stages, chunks and, where it is small, micro-batches."""
    stages = np.array([len(row) for row in rows], dtype=np.int64)
    num, m, found = stages[which], num_micro.astype(np.int64), np.zeros(len(which))
    held = np.where(num > 1, 2 if schedule in (*V_SHAPED, *BIDIRECTIONAL) else chunks.astype(np.int64), 1)
    each = np.where(held > 1, m // np.maximum(m // num, 1), num) if schedule in INTERLEAVED else num
    few = np.minimum(m, first_rounds(schedule) * each + 1)
    forms, form = np.unique(np.stack([num, held, each, few]), axis=1, return_inverse=True)
    for k, (p, v, size, number) in enumerate(forms.T.tolist()):
        plans = np.flatnonzero(form.reshape(-1) == k)
        # Class by stage of every layout with so many stages.
        table = np.array([row if len(row) == p else [0] * p for row in rows], dtype=np.int64).T
        for start in range(0, len(plans), _AT_ONCE):
            some = plans[start : start + _AT_ONCE]
            kinds = table[:, which[some]]
            if p == 1:
                found[some] = num_micro[some] * times.busy_s_of(kinds, some)[0]
                continue
            parts = (times.forward_s, times.dgrad_s, times.wgrad_s, times.send_s)
            forward, dgrad, wgrad, send = (a[kinds, some] for a in parts)
            found[some] = extrapolated_s(schedule, (forward, dgrad, wgrad, send), num_micro[some], number, v, size)
    return found
