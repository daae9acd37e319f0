"""The stages of a plan as rows of regions, chunk by chunk, and the schedule that hands micro-batches on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ...cost.schedules.tasks import Order, Schedule, schedule_of
from ...driver.estimate import Estimate
from ...ir.graph import Graph, Workload
from ...ir.plan.layout.stages import chunk_borders, chunk_rows
from ...ir.records import dataclass
from ...ir.schedules.kind import Kind, Task, round_robin


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """The regions of one chunk in the order of the model, each with the number of its layer; -1 where it has none.

    `border` is the region of what it receives, of the first chunk what it sends; empty where there is one chunk.
    """

    regions: tuple[str, ...]
    layers: tuple[int, ...]
    border: str = ""


@dataclass(frozen=True, slots=True)
class Stages:
    """Every stage of one plan.

    Attributes:
        schedule: the order of its tasks.
        chunks: what each stage has, chunk by chunk.
        cls: the class of each stage.
    """

    schedule: Schedule
    chunks: tuple[tuple[ChunkRow, ...], ...]
    cls: tuple[int, ...]

    def name(self, stage: int, alone: bool) -> str:
        """Name a stage, and with it those like it unless each is shown alone."""
        alike = [k for k, c in enumerate(self.cls) if c == self.cls[stage]]
        if alone or len(alike) == 1:
            return f"stage {stage}"
        return f"stages {ranges(alike)} (shown: {stage})"

    def shown(self, alone: bool) -> list[int]:
        """Return the earliest stage of each class, or all."""
        return list(range(len(self.cls))) if alone else sorted({self.cls.index(c) for c in self.cls})


def stages_of(answer: Estimate) -> Stages:
    """Lay a plan on its stages, task by task."""
    layout = answer.table.staging.layouts[int(answer.table.staging.which[0])]
    schedule, rows = _schedule(answer, layout.vpp), _chunks(answer)
    chunks = tuple(tuple(rows[number] for number in stage) for stage in schedule.place.tolist())
    return Stages(schedule, chunks, layout.stages)


def chunks_of(answer: Estimate) -> Sequence[Sequence[ChunkRow]]:
    """Return the chunks of every stage, whatever the order of tasks."""
    rows = _chunks(answer)
    held = answer.table.staging.layouts[int(answer.table.staging.which[0])].held
    return [[rows[number] for number in stage] for stage in held]


def _chunks(answer: Estimate) -> Sequence[ChunkRow]:
    table = answer.table
    graph, layout = table.lowered.graph, table.staging.layouts[int(table.staging.which[0])]
    borders = chunk_borders(graph, layout.blocks) or ("",) * len(layout.blocks)
    return _numbered(graph, chunk_rows(graph, layout, table.lowered.stages.recomputed), borders)


def _schedule(answer: Estimate, num_chunks: int) -> Schedule:
    plan = answer.plan
    if answer.table.lowered.graph.workload is not Workload.TRAIN:
        # One batch that goes forward through every chunk.
        order = Order.of(Task(Kind.FORWARD, 0, chunk) for chunk in range(num_chunks))
        return Schedule.of("forward", 1, (order,) * plan.pp, round_robin(plan.pp, num_chunks))
    return schedule_of(plan.family.schedule, plan.pp, plan.num_micro_batches, num_chunks)


def _numbered(graph: Graph, rows: Sequence[tuple[str, ...]], borders: Sequence[str]) -> list[ChunkRow]:
    """Number the layers: regions whose module paths have a star for the number."""
    starred = {r.name for r in graph.regions if any("*" in n.scope for n in r.nodes)}
    found, layer = [], 0
    for row, border in zip(rows, borders, strict=True):
        numbers = []
        for name in row:
            numbers.append(layer if name in starred else -1)
            layer += name in starred
        found.append(ChunkRow(row, tuple(numbers), border))
    return found


def ranges(numbers: Sequence[int]) -> str:
    """Print numbers as ranges.

    >>> ranges([1, 2, 3, 6])
    '1-3, 6'
    """
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda kn: kn[1] - kn[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
