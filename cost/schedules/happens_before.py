"""Whether a pipeline schedule can run: each message has one sender and one receiver, and no task waits for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from ...ir.schedules.kind import Kind
from .tasks import Index, Order, Schedule

# Stage, chunk, micro-batch and direction: 0 forward, 1 backward (of inputs), 2 gradients of weights apart.
Task: TypeAlias = tuple[int, int, int, int]
_WAYS: dict[int, int] = {Kind.FORWARD: 0, Kind.BACKWARD: 1, Kind.DGRAD: 1, Kind.WGRAD: 2}


def order_faults(schedule: Schedule) -> Iterator[str]:
    """Yield what keeps a schedule from running; nothing for one that runs.

    Sends do not block: a stage goes on when it has handed a result over. Tasks that are joined start together.
    """
    rows = [_units(schedule.orders[stage], stage) for stage in range(schedule.num_stages)]
    counts = Counter(task for row in rows for unit in row for task in unit)
    yield from (f"{_said(t)} runs {n} times" for t, n in counts.items() if n > 1)
    yield from _unmatched(schedule, counts)
    yield from _cycle(schedule, rows)


def _units(order: Order, stage: int) -> list[tuple[Task, ...]]:
    """The tasks of a stage, those that start together as one."""
    found: list[tuple[Task, ...]] = []
    columns = [column.tolist() for column in (order.chunk, order.micro_batch, order.kind)]
    for chunk, micro, kind, joins in zip(*columns, [False, *order.joined.tolist()[:-1]], strict=True):
        together = found.pop() if joins else ()
        found.append((*together, (stage, chunk, micro, _WAYS[kind])))
    return found


def _said(task: Task) -> str:
    stage, chunk, micro, way = task
    return (
        f"{('forward', 'backward', 'gradients of weights')[way]} of micro-batch {micro} on stage {stage}, chunk {chunk}"
    )


def _linked(links: Index, task: Task) -> Iterator[Task]:
    """The task on the chunk before or behind, in the direction of the model, if there is one."""
    stage, chunk = links[:, task[0], task[1]].tolist()
    yield from [(stage, chunk, *task[2:])] if stage >= 0 else []


def _unmatched(schedule: Schedule, counts: Counter[Task]) -> Iterator[str]:
    """Messages that nobody sends or receives, and forward tasks without a backward one."""
    backward = {t for t in counts if t[3] == 1}
    for task in counts:
        stage, chunk, micro, way = task
        for other in _linked(schedule.behind, task) if way < 2 else ():
            if counts[other] != 1:
                yield f"{_said(task)} meets {counts[other]} tasks on the next chunk"
        if way != 1 and (stage, chunk, micro, 1) not in backward:
            yield f"{_said(task)} has no backward task"
        if way == 1 and counts[stage, chunk, micro, 0] != 1:
            yield f"{_said(task)} has no forward task"
        for sender in _linked(schedule.before, task) if way == 0 else ():
            if counts[sender] != 1:
                yield f"{_said(task)} receives from {counts[sender]} tasks"


def _cycle(schedule: Schedule, units: list[list[tuple[Task, ...]]]) -> Iterator[str]:
    """Run the schedule without clocks; what is left when nothing can go on waits for itself."""
    done: set[Task] = set()
    at = [0] * len(units)
    moved = True
    while moved:
        moved = False
        for stage, row in enumerate(units):
            while at[stage] < len(row) and all(n in done for t in row[at[stage]] for n in _needs(schedule, t)):
                done.update(row[at[stage]])
                at[stage] += 1
                moved = True
    for stage, row in enumerate(units):
        if at[stage] < len(row):
            yield f"stage {stage} waits for ever at the {_said(row[at[stage]][0])}"


def _needs(schedule: Schedule, task: Task) -> Iterator[Task]:
    """The tasks whose results a task reads."""
    stage, chunk, micro, way = task
    if way == 0:
        yield from _linked(schedule.before, task)
    elif way == 1:
        yield stage, chunk, micro, 0
        yield from _linked(schedule.behind, task)
    else:
        yield stage, chunk, micro, 1
