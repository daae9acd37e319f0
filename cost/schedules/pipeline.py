"""The pipelined part of a step for a table of plans: seconds, the stage that sets the pace, and the bubble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .extrapolate import extrapolated_s, first_rounds
from .forms import gpipe_s, one_f_one_b_s
from .line import Line, Row
from .rounds import interleaved_s
from .tasks import Array

# Plans worked on at a time: their arrays stay in the cache of a core.
BLOCK = 4096
# From so many rounds of p micro-batches on, interleaved steps differ in nothing but turns of one stage.
_ROUNDS = 7


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

    1F1B, interleaved 1F1B and GPipe have closed forms; the zero-bubble schedules and DualPipe are run with few
    micro-batches and go on from there in even steps. Neither takes longer for more micro-batches.

    >>> ones = np.ones((1, 1))
    >>> times = ClassTimes(ones, ones, ones, ones * 0.0)
    >>> pipeline_time("1f1b", times, [[0] * 4], np.zeros(1, dtype=int), np.ones(1), np.full(1, 8.0)).bubble_s
    array([9.])
    """
    pace, micro_s, total_s = np.zeros(len(which), dtype=np.intp), np.zeros(len(which)), np.zeros(len(which))
    for layout, chunks, key, plans in _groups(schedule, rows, which, num_chunks, num_micro_batches):
        classes = np.unique(rows[layout])
        form = _form(schedule, Row.of(list(rows[layout])), chunks, key)
        for start in range(0, len(plans), BLOCK):
            some = plans[start : start + BLOCK]
            here = times.of(some)
            busy = here.busy_s[classes]
            slowest = busy.argmax(axis=0)
            pace[some] = classes[slowest]
            micro_s[some] = busy.max(axis=0)
            total_s[some] = form(here, num_micro_batches[some])
    bubble_s = np.maximum(total_s - num_micro_batches * micro_s, 0.0)
    return Paced(num_micro_batches * micro_s + bubble_s, bubble_s, pace, micro_s)


_Form = Callable[[ClassTimes, Array], Array]


def _form(schedule: str, row: Row, chunks: int, key: int) -> _Form:
    """The form for one layout and one range of micro-batches."""
    p = row.num_stages
    if p == 1:
        return lambda t, m: m * t.busy_s[row.runs[0][0]]
    if schedule == "gpipe":
        return lambda t, m: gpipe_s(_line(row, t, 1), m)
    if schedule == "1f1b" and chunks == 1:
        cut = row.cut(p - key) if key <= p else row
        return lambda t, m: one_f_one_b_s(_line(cut, t, 1), m, key)
    if schedule == "1f1b":
        round_row = row.cut((p - 1) // 2) if key == 1 else row
        return lambda t, m: interleaved_s(_line(round_row, t, chunks), m, chunks, key)
    return lambda t, m: extrapolated_s(schedule, row, (t.forward_s, t.dgrad_s, t.wgrad_s, t.send_s), m, key)


def _line(row: Row, times: ClassTimes, chunks: int) -> Line:
    share = 1.0 / chunks
    return Line.of(row, times.forward_s * share, (times.dgrad_s + times.wgrad_s) * share, times.send_s)


def _groups(
    schedule: str, rows: Sequence[Sequence[int]], which: NDArray[np.intp], num_chunks: Array, num_micro_batches: Array
) -> list[tuple[int, int, int, NDArray[np.intp]]]:
    """Plans whose steps have the same structure: layout, chunks, and the number of micro-batches where it is small."""
    stages = np.array([len(row) for row in rows], dtype=np.int64)[which]
    chunks, micro = num_chunks.astype(np.int64), num_micro_batches.astype(np.int64)
    if schedule == "gpipe":
        key = np.zeros_like(micro)
    elif schedule == "1f1b":
        key = np.where(chunks > 1, np.minimum(micro // stages, _ROUNDS), np.minimum(micro, stages + 1))
    else:
        key = np.minimum(micro, first_rounds(schedule) * stages + 1)
    if len(which) == 1:
        return [(int(which[0]), int(chunks[0]), int(key[0]), np.zeros(1, dtype=np.intp))]
    code = (which * (int(chunks.max()) + 1) + chunks) * (int(key.max()) + 1) + key
    order = np.argsort(code, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
    return [(int(which[part[0]]), int(chunks[part[0]]), int(key[part[0]]), part) for part in parts if len(part)]
