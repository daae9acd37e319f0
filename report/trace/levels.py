"""How much of each micro-batch a trace shows, so that viewers can hold it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ...ir.records import dataclass
from ...ir.schedules.kind import Kind
from .stages import ranges
from .timeline import Timeline

# What the viewers of Perfetto and Chrome hold with ease.
MOST_EVENTS = 200_000
# A task with its arrows and the moments of memory.
_TASK_EVENTS = 10


class DetailLevel(IntEnum):
    """What is shown of a micro-batch: nothing, tasks alone, with messages and memory, with layers, with nodes."""

    NOTHING = 0
    BARE = 1
    TASK = 2
    LAYER = 3
    NODE = 4


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each micro-batch, and in words what is left out."""

    of: tuple[DetailLevel, ...]
    left_out: tuple[str, ...]


def levels_of(timeline: Timeline, shown: Sequence[int], detail: str, most: int = MOST_EVENTS) -> Levels:
    """Choose a level for each micro-batch: the one asked for, or with `auto` as much as the most events allow.

    `auto` shows the nodes of the first micro-batches, and of the others their tasks.
    """
    num = timeline.stages.schedule.num_micro_batches
    if detail != "auto":
        level = {"task": DetailLevel.TASK, "layer": DetailLevel.LAYER, "node": DetailLevel.NODE}[detail]
        return _named([level] * num, timeline, shown)
    tasks = sum(len(timeline.stages.schedule.orders[stage]) for stage in shown)
    rest = _rest(tasks, num, most)
    nodes, layers = _events(timeline, shown)
    room = most - sum(_TASK_EVENTS if level is DetailLevel.TASK else int(level > 0) for level in rest) * tasks // num
    best, cost = (DetailLevel.NODE, nodes) if nodes <= max(room, most // 4) else (DetailLevel.LAYER, layers)
    first = min(max(int(room // max(cost, 1.0)), 1), num)
    return _named([best if k < first else level for k, level in enumerate(rest)], timeline, shown)


def _rest(tasks: int, num: int, most: int) -> list[DetailLevel]:
    """What micro-batches behind the first ones show; those in the middle nothing where bare tasks are too many."""
    if tasks * _TASK_EVENTS <= most // 2:
        return [DetailLevel.TASK] * num
    if tasks <= most // 2:
        return [DetailLevel.BARE] * num
    kept = max(num * (most // 2) // tasks // 2, 1)
    return [DetailLevel.BARE if k < kept or k >= num - kept else DetailLevel.NOTHING for k in range(num)]


def _events(timeline: Timeline, shown: Sequence[int]) -> tuple[float, float]:
    """Events of one micro-batch in all stages shown, with nodes and with layers only."""
    nodes = layers = 0.0
    for stage in shown:
        order = timeline.stages.schedule.orders[stage]
        for chunk, kind in sorted(set(zip(order.chunk.tolist(), order.kind.tolist(), strict=True))):
            shape = timeline.shape(stage, chunk, Kind(kind))
            layers += 3 * len(shape.runs) + _TASK_EVENTS
            # A slice a node, and two counters where it computes.
            nodes += 3 * len(shape.pieces) + len(shape.runs) + _TASK_EVENTS
    return nodes, layers


_WORDS = {
    DetailLevel.NOTHING: "are left out",
    DetailLevel.BARE: "show their tasks, without layers, nodes, messages and memory",
    DetailLevel.TASK: "show their tasks, without layers and nodes",
    DetailLevel.LAYER: "show their layers, without nodes",
}


def _named(levels: Sequence[DetailLevel], timeline: Timeline, shown: Sequence[int]) -> Levels:
    """Say what is left out."""
    words = []
    for level in sorted(set(levels) - {DetailLevel.NODE}):
        numbers = [k for k, v in enumerate(levels) if v is level]
        words.append(f"micro-batches {ranges(numbers)} {_WORDS[level]}")
    hidden = len(timeline.stages.cls) - len(shown)
    if hidden:
        words.append(f"of {len(timeline.stages.cls)} stages {len(shown)} are shown, the others are like one of them")
    return Levels(tuple(levels), tuple(words))
