"""Schedules by name: what each asks of a plan, where its chunks stand, and that columns say what numbers do."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import WORDS, Family, Plan, make_plan
from slipstick.ir.schedules import known
from slipstick.ir.schedules.kind import Kind, ScheduleKind
from slipstick.ir.schedules.registry import ALIASES, SCHEDULES, USUAL, can_run, check_schedule

ABLE = " and ".join(name for name, kind in SCHEDULES.items() if kind.interleaves)


def plan(schedule: str, pp: int, micro_batches: int, vpp: int = 1) -> Plan:
    family = Family(pp=True, schedule=schedule)
    return make_plan(num_gpus=pp, pp=pp, vpp=vpp, seq_len=64, global_batch=micro_batches, family=family)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_runs_two_micro_batches_a_stage(schedule: str) -> None:
    assert plan(schedule, 4, 8).vpp == SCHEDULES[schedule].chunks


@pytest.mark.parametrize(
    ("schedule", "pp", "micro_batches", "vpp", "said"),
    [
        ("dualpipe", 4, 6, 1, "needs two micro-batches a stage, 2 x pp=4 = 8; gbs / (mbs x dp) = 6; nearest: 8"),
        ("dualpipe", 4, 9, 1, "half of the micro-batches each way; gbs / (mbs x dp) = 9 is odd; nearest: 8 or 10"),
        ("dualpipe", 3, 8, 1, "needs an even number of stages, not pp=3; nearest: 2, 4"),
        ("dualpipe", 4, 8, 2, f"vpp=2 interleaves the schedules {ABLE}, not dualpipe; legal vpp: 1"),
        ("zb-v", 4, 8, 3, "schedule zb-v puts 2 chunks on every stage, not vpp=3; legal vpp: 2"),
        ("dualpipe-v", 4, 7, 2, "needs a micro-batch a chunk, 2 x pp=4 = 8; gbs / (mbs x dp) = 7; nearest: 8"),
        ("dualpipe-v", 4, 8, 4, "schedule dualpipe-v puts 2 chunks on every stage, not vpp=4; legal vpp: 2"),
        ("zb-h2", 4, 8, 2, f"vpp=2 interleaves the schedules {ABLE}, not zb-h2; legal vpp: 1"),
        ("gpipe", 4, 8, 2, f"vpp=2 interleaves the schedules {ABLE}, not gpipe; legal vpp: 1"),
        *((name, 4, 11, 2, "does not divide by 2 rounds; nearest: 10 or 12 micro") for name in ("1f1b", "zb-h1")),
        *((name, 1, 8, 1, "pp=1 has none; legal pp: 2, 4") for name, kind in SCHEDULES.items() if kind.split_backward),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(schedule: str, pp: int, micro_batches: int, vpp: int, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan(schedule, pp, micro_batches, vpp)
    assert said in str(caught.value)
    assert PlanError.exit_code == 2


def test_inference_has_no_backward_phase_to_split() -> None:
    family = Family(workload=Workload.PREFILL, pp=True, schedule="zb-h1")
    with pytest.raises(PlanError, match="schedule=zb-h1: of training only"):
        make_plan(num_gpus=4, pp=4, seq_len=64, family=family)


@pytest.mark.parametrize("kind", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("pp", [1, 2, 4, 6])
def test_every_stage_holds_as_many_chunks(kind: ScheduleKind, pp: int) -> None:
    where = kind.placed(pp, kind.chunks)
    held = [sum(stage in stages for stages in where) for stage in range(pp)]
    assert set(held) == {kind.chunks * (kind.copies if pp > 1 else 1)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_columns_say_what_numbers_do(schedule: str) -> None:
    """Every requirement is written once, with operators, and read by `make_plan` and by tables."""
    m, p, v = (axis.ravel() for axis in np.meshgrid(range(1, 26), range(1, 9), range(1, 4)))
    rows = list(zip(m.tolist(), p.tolist(), v.tolist(), strict=True))
    alone = [bool(can_run(schedule, *row)) for row in rows]
    found = can_run(schedule, *(axis.astype(float) for axis in (m, p, v)))
    assert np.asarray(found).tolist() == alone
    for row, able in zip(rows[::7], alone[::7], strict=True):
        if able:
            check_schedule(schedule, *row)
            continue
        with pytest.raises(PlanError, match=r"legal|nearest"):
            check_schedule(schedule, *row)


def test_every_file_is_a_schedule_and_lists_run_as_they_were_published() -> None:
    files = [path for folder in known.__path__ for path in Path(folder).glob("*.py") if path.name != "__init__.py"]
    assert len(files) == len(SCHEDULES)
    published = [kind.published for kind in SCHEDULES.values()]
    assert published == sorted(published)


def test_words_of_plans_are_the_names_and_other_words_of_schedules() -> None:
    row = WORDS["schedule"]
    assert set(row.word.choices) == {*SCHEDULES, *ALIASES}
    assert row.default == USUAL
    assert all(f"{kind.name} ({kind.help})" in row.word.help for kind in SCHEDULES.values())


@pytest.mark.parametrize("kind", SCHEDULES.values(), ids=SCHEDULES)
def test_facts_are_those_of_the_order(kind: ScheduleKind) -> None:
    """Of the stage with the end of the model: is any backward task in two; does each wait for the next forward one?"""
    p, m = 4, 12
    where = kind.placed(p, kind.chunks)
    stage = where[-1][0]
    last = sum(stages[0] == stage for stages in where) - 1
    tasks = list(kind.order(stage, p, m, kind.chunks))
    assert kind.split_backward == any(task.kind is Kind.WGRAD for task in tasks)
    steps = {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.DGRAD: 0, Kind.WGRAD: -1}
    held = list(accumulate(steps[task.kind] for task in tasks if task.chunk == last))
    assert kind.used_at_once == (max(held) == 1)
