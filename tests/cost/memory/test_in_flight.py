"""Micro-batches that a stage holds: the forms of the memory account against schedules run task by task."""

import numpy as np
import pytest

from slipstick.cost.memory.in_flight import in_flight
from slipstick.cost.schedules.menu import schedule_of
from slipstick.cost.step.stages import Staging
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.plan.layout.pipelines import INTERLEAVED, SCHEDULES, chunks_of, round_size

SHAPES = [(name, p, v) for name in SCHEDULES for p in (2, 4, 8) for v in ((1, 2, 3) if name in INTERLEAVED else (1,))]
CASES = [
    (name, p, v, m)
    for name, p, v in SHAPES
    for m in (p // 2, p, 3 * p // 2, 2 * p, 2 * p + 2, 5 * p)
    if (v == 1 or round_size(m, p)) and (not name.startswith("dualpipe") or m >= 2 * p)
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
    held = 2.0 if name == "dualpipe" else 1.0
    found = [held * float(in_flight(alone(p, chunks_of(name, v)), k, plans)[0]) for k in range(p)]
    schedule = schedule_of(name, p, m, 2 if name == "dualpipe" else chunks_of(name, v))
    assert found == pytest.approx(list(schedule.peak_in_flight))


def test_a_single_stage_holds_one_micro_batch() -> None:
    # Nothing waits for other stages: each micro-batch runs backward before the next one begins.
    family = Family(pp=True, schedule="gpipe")
    plans = PlanTable.of([make_plan(num_gpus=2, pp=2, seq_len=64, global_batch=8, family=family)])
    assert in_flight(alone(1, 1), 0, plans).tolist() == [1.0]
    assert in_flight(alone(2, 1), 0, plans).tolist() == [8.0]
