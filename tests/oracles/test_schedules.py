"""Pipeline schedules against the tables of actions of torch.distributed.pipelining: which task when, what is held.

A table lists what each rank runs, in order. It is run here with times of our own: an action starts when its rank is
free and what it needs is there. Of all schedules that PyTorch has, LoopedBFS is left out: it is GPipe over chunks,
which no plan of ours has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import pytest
import torch

from slipstick.cost.schedules.simulate import simulate
from slipstick.cost.schedules.tasks import StageTimes
from slipstick.ir.errors import PlanError
from slipstick.ir.schedules.registry import check_schedule

pytestmark = pytest.mark.oracle

# Name of ours and chunks a stage, by the class of theirs.
PAIRS = (
    ("ScheduleGPipe", "gpipe", 1), ("Schedule1F1B", "1f1b", 1), ("ScheduleInterleaved1F1B", "1f1b", 2),
    ("ScheduleInterleaved1F1B", "1f1b", 3), ("ScheduleInterleavedZeroBubble", "zb-h1", 1),
    ("ScheduleInterleavedZeroBubble", "zb-h1", 2), ("ScheduleInterleavedZeroBubble", "zb-h1", 3),
    ("ScheduleZBVZeroBubble", "zb-v", 2), ("ScheduleDualPipeV", "dualpipe-v", 2),
)  # fmt: skip
# Seconds of forward, and of the gradients of activations and of weights; stages differ by up to a third.
TIMES = ((1.0, 1.0, 1.0), (1.0, 1.0, 0.5), (1.0, 2.0, 1.0), (1.0, 1.25, 0.75))
STAGES = (2, 3, 4, 5, 8)


class Task(NamedTuple):
    """What an action does: F, B (gradients of activations), W (of weights) or BW (both), where, to which batch."""

    kind: str
    stage: int
    micro: int


class _Stage:
    """What a schedule asks of a stage when it is made."""

    def __init__(self, index: int, rank: int, p: int, num_stages: int) -> None:
        self.stage_index, self.group_rank, self.group_size, self.num_stages = index, rank, p, num_stages
        self.is_first, self.is_last = index == 0, index == num_stages - 1
        self.has_backward, self.submod, self.device = True, torch.nn.Identity(), "cpu"
        self.stage_index_to_group_rank: dict[int, int] = {}

    def __getattr__(self, name: str) -> None:
        return None


def place_of(kind: str, p: int, v: int) -> Mapping[int, tuple[int, int]]:
    """The rank of each of their stages, and the chunk of ours there."""
    if kind in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV"):
        return {k: (k, 0) if k < p else (2 * p - 1 - k, 1) for k in range(2 * p)}
    return {k: (k % p, k // p) for k in range(p * v)}


def table(kind: str, p: int, v: int, m: int) -> Sequence[Sequence[Sequence[Task]]]:
    """The actions of each rank, each a task or two that run joined; ValueError where theirs cannot."""
    from torch.distributed.pipelining import schedules

    made = getattr(schedules, kind)
    where = place_of(kind, p, v)
    if kind in ("ScheduleGPipe", "Schedule1F1B"):
        return [_single(made(_Stage(r, r, p, p), m), r) for r in range(p)]
    mine = [_Stage(k, 0, p, p * v) for k, (rank, _) in where.items() if rank == 0]
    for stage in mine:
        stage.stage_index_to_group_rank = {k: rank for k, (rank, _) in where.items()}
    orders = made(mine, m).pipeline_order
    return [[tasks for a in orders[r] if a is not None and (tasks := _tasks(a))] for r in range(p)]


def _single(schedule: object, rank: int) -> list[list[Task]]:
    """Of a schedule of one stage a rank; in 1F1B's table forward tasks of the last rank count from one."""
    actions = [a for a in schedule._get_pipeline_order()[rank] if a is not None]  # type: ignore[attr-defined]
    found, forwards = [], 0
    for task in (t for a in actions for t in _tasks(a)):
        found.append([task._replace(micro=forwards) if task.kind == "F" else task])
        forwards += task.kind == "F"
    return found


_KINDS = MappingProxyType({"FORWARD": "F", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "BW"})


class _Action(Protocol):
    """An action of theirs, or two that overlap."""

    computation_type: Enum
    stage_index: int
    microbatch_index: int
    sub_actions: tuple[_Action, ...] | None


def _tasks(action: _Action) -> list[Task]:
    parts = action.sub_actions or (action,)
    known = (a for a in parts if a.computation_type.name in _KINDS)
    return [Task(_KINDS[a.computation_type.name], a.stage_index, a.microbatch_index) for a in known]


def run(
    orders: Sequence[Sequence[Sequence[Task]]], num_stages: int, seconds: Mapping[str, Sequence[float]]
) -> tuple[float, list[int]]:
    """The end of the last action, and the most micro-batches whose activations each rank holds, chunks apart."""
    done: dict[tuple[str, int, int], float] = {}
    clock, at, held, peak = ([0.0] * len(orders), [0] * len(orders), [0] * len(orders), [0] * len(orders))
    left = sum(map(len, orders))
    while left:
        before = left
        for r, order in enumerate(orders):
            while at[r] < len(order) and all(n in done for t in order[at[r]] for n in needs(t, num_stages)):
                tasks = order[at[r]]
                start = max([clock[r], *(done[n] for t in tasks for n in needs(t, num_stages))])
                clock[r] = start + sum(seconds[k][t.stage] for t in tasks for k in t.kind)
                for t in tasks:
                    done |= {(k, t.stage, t.micro): clock[r] for k in t.kind}
                    held[r] += t.kind == "F"
                    peak[r] = max(peak[r], held[r])
                for t in tasks:
                    held[r] -= "W" in t.kind
                at[r] += 1
                left -= 1
        assert left < before, "ranks wait for one another"
    return max(clock), peak


def needs(task: Task, num_stages: int) -> list[tuple[str, int, int]]:
    kind, stage, micro = task
    if kind == "F":
        return [("F", stage - 1, micro)] if stage else []
    if kind == "W":
        return [("B", stage, micro)]
    return [("F", stage, micro), *([("B", stage + 1, micro)] if stage < num_stages - 1 else [])]


@pytest.mark.parametrize(("kind", "name", "v"), PAIRS)
def test_times_and_activations_are_those_of_the_table(kind: str, name: str, v: int) -> None:
    """For as many micro-batches as theirs takes ours is the same; of chunks, what theirs refuses, ours refuses."""
    compared = 0
    for p in STAGES:
        where = place_of(kind, p, v)
        uneven = np.random.default_rng(p).uniform(0.75, 1.0, (p, v)) / v
        for m in sorted({p - 1, p, p + 1, 2 * p - 1, 2 * p, 2 * p + 1, 3 * p, 3 * p + 2, 4 * p} - {1}):
            try:
                orders = table(kind, p, v, m)
            except ValueError:
                # Without chunks there are no rounds, which theirs asks for all the same.
                if v > 1:
                    with pytest.raises(PlanError):
                        check_schedule(name, m, p, v)
                continue
            for times in TIMES:
                own = {k: [t * uneven[where[s]] for s in range(p * v)] for k, t in zip("FBW", times, strict=True)}
                end_s, peak = run(orders, p * v, own)
                ours = simulate(name, StageTimes.of(*(t * uneven for t in times)), m)
                assert ours.makespan_s == pytest.approx(end_s, rel=1e-12), (p, m, times)
                assert list(ours.peak_in_flight * v) == pytest.approx(peak), (p, m)
                compared += 1
    assert compared > 60
