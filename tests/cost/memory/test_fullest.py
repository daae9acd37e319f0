"""Micro-batches that a stage holds: the forms of the memory account against schedules run task by task."""

import numpy as np
import pytest

from slipstick.cost.memory.fullest import in_flight
from slipstick.cost.schedules.tasks import schedule_of
from slipstick.cost.step.stages import Staging
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.schedules.registry import SCHEDULES, can_run

SHAPES = [
    (name, p, v)
    for name, kind in SCHEDULES.items()
    for p in (2, 4, 8)
    for v in ((1, 2, 3) if kind.interleaves else (kind.chunks,))
]
CASES = [
    (name, p, v, m)
    for name, p, v in SHAPES
    for m in (p // 2, p, 3 * p // 2, 2 * p, 2 * p + 2, 5 * p)
    if can_run(name, m, p, v)
]


def alone(p: int, v: int) -> Staging:
    """Stages of which each is a class of its own."""
    one, stages = np.ones((1, p)), np.arange(float(p)).reshape(1, p)
    column = np.ones(1)
    return Staging(
        (),
        np.zeros(1, dtype=np.intp),
        one[:, :, None],
        one[:, :, None],
        stages,
        one,
        ("r",),
        p * column,
        v * column,
        column,
    )


@pytest.mark.parametrize(("name", "p", "v", "m"), CASES)
def test_the_account_holds_what_the_schedule_holds(name: str, p: int, v: int, m: int) -> None:
    family = Family(pp=True, schedule=name)
    plans = PlanTable.of([make_plan(num_gpus=p, pp=p, vpp=v, seq_len=64, global_batch=m, family=family)])
    # A stage of DualPipe holds two chunks of a whole stage's size, a micro-batch is in one of them.
    copies = SCHEDULES[name].copies
    found = [copies * float(in_flight(alone(p, v), k, plans)[0]) for k in range(p)]
    schedule = schedule_of(name, p, m, v)
    assert found == pytest.approx(list(schedule.peak_in_flight))


def test_a_single_stage_holds_one_micro_batch() -> None:
    # Nothing waits for other stages: each micro-batch runs backward before the next one begins.
    family = Family(pp=True, schedule="gpipe")
    plans = PlanTable.of([make_plan(num_gpus=2, pp=2, seq_len=64, global_batch=8, family=family)])
    assert in_flight(alone(1, 1), 0, plans).tolist() == [1.0]
    assert in_flight(alone(2, 1), 0, plans).tolist() == [8.0]
