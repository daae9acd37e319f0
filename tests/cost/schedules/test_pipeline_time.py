"""The pipelined part of a step over plans: against schedules run task by task, and laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slipstick.cost.schedules.pipeline import ClassTimes, Paced, Pipelines, pipeline_times
from slipstick.cost.schedules.simulate import simulate
from slipstick.cost.schedules.tasks import StageTimes
from slipstick.ir.schedules.registry import SCHEDULES, can_run

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
# Schedule, chunks a stage.
KINDS = [(name, v) for name, kind in SCHEDULES.items() for v in ((1, 2, 3) if kind.interleaves else (kind.chunks,))]
KINDS.append(("1f1b", 4))
# First and last stage against those between.
ENDS = [(1.0, 1.0), (1.5, 1.0), (1.0, 1.5), (0.5, 1.5), (1.5, 0.5), (0.5, 0.5), (1.2, 1.2), (0.8, 1.1)]
BACKWARD = [1.0, 2.0, 3.0]
SENDS = [0.0, 0.02, 0.1]


def pipeline_time(
    schedule: str, times: ClassTimes, rows: Sequence[Sequence[int]], which: Index, chunks: Array, micro: Array
) -> Paced:
    """One table alone."""
    every = [(schedule, np.arange(len(which)))]
    return pipeline_times([Pipelines(every, times, rows, which, chunks, micro)])[0]


def row(p: int) -> tuple[int, ...]:
    """First, last, and those between."""
    return (0, *[1] * (p - 2), 2)


def ends(first: float, last: float, backward: float, send_s: float) -> ClassTimes:
    """Classes of one plan; a little less than half of the backward phase is for weights."""
    forward = np.array([[first], [1.0], [last]])
    return ClassTimes(forward, forward * backward * 0.55, forward * backward * 0.45, np.full((3, 1), send_s))


def closed(name: str, v: int, times: ClassTimes, rows: Sequence[Sequence[int]], m: int) -> Paced:
    """One plan by the closed form."""
    return pipeline_time(name, times, rows, np.zeros(1, dtype=np.intp), np.full(1, float(v)), np.full(1, float(m)))


def by_tasks(name: str, v: int, times: ClassTimes, classes: Sequence[int], m: int) -> float:
    """The same plan task by task."""
    chunks = v * SCHEDULES[name].copies
    parts = [a[list(classes)] / v * np.ones(chunks) for a in (times.forward_s, times.dgrad_s, times.wgrad_s)]
    return simulate(name, StageTimes.of(*parts, send_s=times.send_s[list(classes)]), m).step_s


@pytest.mark.parametrize(("name", "v"), KINDS)
@pytest.mark.parametrize("p", [2, 3, 4, 8, 16])
def test_the_form_agrees_with_the_tasks(name: str, v: int, p: int) -> None:
    """Within 1 % over uneven ends, ratios of backward to forward (3 with recomputation), messages, micro-batches."""
    most = 0.0
    for k, (first, last) in enumerate(ENDS):
        for m in (p, p + 1, 2 * p, 2 * p + 2, 3 * p + 1, 4 * p, (12 if p < 16 else 6) * p):
            times = ends(first, last, BACKWARD[(k + m) % 3], SENDS[(k + m // p) % 3])
            if can_run(name, m, p, v):
                exact_s = by_tasks(name, v, times, row(p), m)
                most = max(most, abs(float(closed(name, v, times, [row(p)], m).total_s[0]) / exact_s - 1.0))
    assert most <= 0.01


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 8), (16, 512)])
def test_equal_stages_wait_as_the_books_say(p: int, m: int) -> None:
    """(p - 1)(tF + tB) for GPipe and 1F1B, divided by the chunks when interleaved."""
    times = ends(1.0, 1.0, 2.0, 0.0)
    for name, v in (("gpipe", 1), *(("1f1b", v) for v in (1, 2, 3, 4))):
        assert closed(name, v, times, [row(p)], m).bubble_s[0] == pytest.approx((p - 1) * 3.0 / v, rel=1e-12)


@pytest.mark.parametrize(("name", "v"), KINDS)
def test_the_slowest_class_sets_the_pace(name: str, v: int) -> None:
    for (first, last), cls in (((1.5, 1.0), 0), ((0.9, 0.9), 1), ((1.0, 1.2), 2)):
        found = closed(name, v, ends(first, last, 2.0, 0.0), [row(4)], 16)
        assert (found.pace[0], found.micro_batch_s[0]) == (cls, pytest.approx(3.0 * max(first, 1.0, last)))
        assert found.total_s[0] == found.micro_batch_s[0] * 16 + found.bubble_s[0]


@pytest.mark.parametrize("name", sorted({name for name, _ in KINDS}))
@pytest.mark.parametrize("send_s", [0.0, 0.01])
def test_a_plan_is_the_same_alone_and_among_others(name: str, send_s: float) -> None:
    """Layouts, chunks and micro-batches mixed in one table: to the last bit, whatever stands beside a plan."""
    rows = [row(4), (0, 1, 0, 1, 1, 2), row(2), (2, 1, 1, 1, 1, 0), (1, 1), row(10)]
    num = 240
    draw = np.random.default_rng(3)
    forward, dgrad, wgrad = draw.uniform(0.8, 1.2, (3, 3, num))
    times = ClassTimes(forward, dgrad, wgrad, send_s * draw.integers(0, 2, (3, num)).astype(np.float64))
    which = draw.integers(0, len(rows), num)
    stages = np.array([len(rows[k]) for k in which])
    kind = SCHEDULES[name]
    chunks = draw.integers(1, 5, num).astype(float) if kind.interleaves else np.full(num, float(kind.chunks))
    few = (kind.closed is not None) & (chunks == 1.0)
    micro = np.where(few, draw.integers(1, 30, num), stages * draw.choice([2.0, 4.0, 40.0], num))
    rounds = draw.integers(1, 10, num)
    # In one round or two also one micro-batch more than stages.
    more = np.where((rounds < 3) & (stages > 2), 1, 0)
    micro = np.where((chunks > 1.0) & kind.interleaves, (stages + more) * rounds, micro)
    table = pipeline_time(name, times, rows, which, chunks, micro)
    for k in range(0, num, 3):
        alone = pipeline_time(name, times.of(np.array([k])), [rows[which[k]]], np.zeros(1, dtype=np.intp),
                              chunks[[k]], micro[[k]])  # fmt: skip
        assert table.total_s[k] == alone.total_s[0]
        assert (table.pace[k], table.micro_batch_s[k]) == (alone.pace[0], alone.micro_batch_s[0])


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, int, ClassTimes, tuple[int, ...], int]:
    name, v = draw(st.sampled_from(KINDS))
    p = draw(st.sampled_from([2, 4, 6, 8]))
    classes = tuple(draw(st.lists(st.integers(0, 2), min_size=p, max_size=p)))
    part = st.lists(st.floats(0.5, 1.5), min_size=3, max_size=3)
    forward, dgrad, wgrad = (np.array(draw(part)).reshape(3, 1) for _ in range(3))
    times = ClassTimes(forward, dgrad, wgrad, np.full((3, 1), 0.01))
    return name, v, times, classes, p * draw(st.integers(2, 40))


@settings(max_examples=60)
@given(case=tables())
def test_a_bubble_is_never_negative_and_never_less_for_more_work(
    case: tuple[str, int, ClassTimes, tuple[int, ...], int],
) -> None:
    name, v, times, classes, m = case
    p = len(classes)
    found, more = (closed(name, v, times, [classes], n) for n in (m, m + p))
    assert found.bubble_s[0] >= 0.0
    assert more.total_s[0] >= found.total_s[0] * (1.0 - 1e-9)
    assert found.total_s[0] >= m * found.micro_batch_s[0] * (1.0 - 1e-12)


@settings(max_examples=40)
@given(case=tables())
def test_any_row_of_classes_agrees_with_its_tasks(case: tuple[str, int, ClassTimes, tuple[int, ...], int]) -> None:
    name, v, times, classes, m = case
    exact_s = by_tasks(name, v, times, classes, m)
    assert float(closed(name, v, times, [classes], m).total_s[0]) == pytest.approx(exact_s, rel=0.015)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_one_stage_has_no_bubble(name: str) -> None:
    assert closed(name, 1, ends(1.2, 1.0, 2.0, 0.5), [(0,)], 64).bubble_s[0] == 0.0


def test_without_messages_or_work_nothing_takes_time() -> None:
    nothing = ClassTimes(*np.zeros((4, 3, 1)))
    for name, v in KINDS:
        assert closed(name, v, nothing, [row(4)], 64).total_s[0] == 0.0


def test_in_a_round_gradients_wait_for_later_stages_and_all_tasks_before_them() -> None:
    # Forward 1, 8, 5; of the backward phase 8, 2, 1 for operands and 6, 1, 7 for weights; halves of that a chunk.
    forward, dgrad, wgrad = (
        np.array(part).reshape(3, 1) for part in ([1.0, 8.0, 5.0], [8.0, 2.0, 1.0], [6.0, 1.0, 7.0])
    )
    times = ClassTimes(forward, dgrad, wgrad, np.zeros((3, 1)))
    exact_s = by_tasks("1f1b", 2, times, row(4), 4)
    assert closed("1f1b", 2, times, [row(4)], 4).total_s[0] == pytest.approx(exact_s, rel=1e-12)


def test_plans_that_have_not_settled_are_run_each_with_its_own_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZB-H2 on three stages whose pace shows late, one plan beside the other; as exact where few are held at a time."""
    forward, dgrad, wgrad = (
        np.array(part).reshape(3, 1) * np.ones(10) for part in ([11.0, 2.0, 5.0], [0.0, 0.0, 4.0], [3.0, 11.0, 7.0])
    )
    times = ClassTimes(forward, dgrad, wgrad, np.zeros((3, 10)))
    micro = np.array([17.0, 15.0, 18.0, 16.0, 17.0, 18.0, 16.0, 15.0, 16.0, 18.0])
    exact = {m: by_tasks("zb-h2", 1, times.of(np.array([0])), (0, 1, 2), int(m)) for m in set(micro)}
    wanted = pytest.approx([exact[m] for m in micro], rel=1e-12)
    among = ("zb-h2", times, [(0, 1, 2)], np.zeros(10, dtype=np.intp), np.ones(10), micro)
    assert pipeline_time(*among).total_s == wanted
    monkeypatch.setattr("slipstick.cost.schedules.closed.waves._HELD", 1)
    assert pipeline_time(*among).total_s == wanted


def test_turns_that_two_ways_round_just_leave_out_are_enough() -> None:
    """Two rounds of three stages in two chunks leave the first stage 6 x 2 - 8 = 4 turns, two at either end."""
    forward, backward = (np.array(part).reshape(3, 1) for part in ([2.0, 0.0, 1.0], [1.0, 0.0, 2.0]))
    times = ClassTimes(forward, backward, np.zeros((3, 1)), np.ones((3, 1)))
    exact_s = by_tasks("1f1b", 2, times, row(3), 6)
    assert closed("1f1b", 2, times, [row(3)], 6).total_s[0] == pytest.approx(exact_s, rel=1e-12)
