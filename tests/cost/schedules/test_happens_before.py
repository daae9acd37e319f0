"""Schedules that can run, and those that cannot: a task that waits for itself, a message that nobody sends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slipstick.cost.schedules.happens_before import order_faults
from slipstick.cost.schedules.tasks import Order, Schedule, schedule_of
from slipstick.ir.schedules.registry import SCHEDULES

KINDS = [(name, v) for name, kind in SCHEDULES.items() for v in ((1, 3) if kind.interleaves else (kind.chunks,))]


@pytest.mark.parametrize(("name", "chunks"), KINDS)
def test_every_schedule_runs(name: str, chunks: int) -> None:
    assert list(order_faults(schedule_of(name, 4, 8, chunks))) == []


def _with_order(schedule: Schedule, stage: int, picked: list[int]) -> Schedule:
    """The schedule with only some tasks of a stage, in another order."""
    order, at = schedule.orders[stage], np.array(picked)
    made = Order(order.chunk[at], order.micro_batch[at], order.kind[at], order.joined[at])
    return replace(schedule, orders=tuple(made if i == stage else o for i, o in enumerate(schedule.orders)))


def test_a_stage_that_starts_with_its_last_task_waits_for_ever() -> None:
    """The last stage runs the backward task of micro-batch 3 first: its forward task stands behind it."""
    good = schedule_of("1f1b", 4, 4)
    turned = _with_order(good, 3, [7, 0, 1, 2, 3, 4, 5, 6])
    assert any("waits for ever" in fault for fault in order_faults(turned))


@pytest.mark.parametrize("stage", range(4))
def test_a_task_left_out_is_missed_by_its_neighbour(stage: int) -> None:
    good = schedule_of("1f1b", 4, 4)
    short = _with_order(good, stage, [*range(1, 8)])
    assert any(
        "tasks on the next chunk" in f or "receives from 0" in f or "no forward" in f for f in order_faults(short)
    )


def test_a_task_that_runs_twice_is_sent_twice() -> None:
    twice = _with_order(schedule_of("gpipe", 2, 2), 0, [0, 0, 1, 2, 3])
    assert any("runs 2 times" in fault for fault in order_faults(twice))
