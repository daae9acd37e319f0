"""DualPipeV: DualPipe cut in half, each half with its own micro-batches (`dualpipev.py` of deepseek-ai/DualPipe).

It is PyTorch's `ScheduleDualPipeV`. The model goes down the stages and up again as in ZB-V: what is the other direction
of DualPipe is the second chunk, and no parameter is there twice. It overlaps from the start what its 2 p chunks do, so
that it asks for as many micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kind import ScheduleKind, Task, down_and_up
from .dualpipe import EightSteps, two_a_stage


def order(stage: int, p: int, m: int, v: int) -> Sequence[Task]:
    """Return the tasks of a stage: those that DualPipe has up to the middle of twice as many."""
    return EightSteps(p, stage, m).order()


SCHEDULE = ScheduleKind(
    name="dualpipe-v",
    help="half of dualpipe: two chunks a stage",
    published="2025-02",
    order=order,
    # 2 p + 1 chunks of half the stage's layers, as DualPipe with two such stages side by side has.
    in_flight=lambda s, stage: s.p + 0.5,
    places=down_and_up,
    chunks=2,
    split_backward=True,
    filling_rounds=4,
    requirements=(two_a_stage("schedule dualpipe-v needs a micro-batch a chunk"),),
    names={"torch": ("DualPipeV", "")},
)
