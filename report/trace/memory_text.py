"""The memory of the fullest stage over a step, as text: what is held when, and what runs when it is most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ...driver.estimate import Estimate
from ...ir.graph import Workload
from ...ir.records import dataclass
from ...ir.schedules.kind import Kind
from ...ir.units import format_bytes, format_time
from ..columns import in_columns
from .memory import MemoryBook, Point, StageMemory
from .timeline import Timeline, timeline_of


@dataclass(frozen=True, slots=True)
class Moment:
    """What a device holds at one moment of the step, by part."""

    name: str
    at_s: float
    parts: Mapping[str, float]


def memory_text(answer: Estimate) -> str:
    """Return the moments of the fullest stage as a table, what runs at the peak, and the peaks of other stages."""
    timeline = timeline_of(answer)
    book = MemoryBook(timeline)
    stage = book.fullest()
    memory = book.stage(stage)
    moments = list(moments_of(timeline, stage, memory))
    num = len(timeline.stages.cls)
    where = f", the fullest of {num} stages" if num > 1 else ""
    capacity = format_bytes(float(answer.table.system.chip.hbm_bytes))
    lines = [
        f"memory of a device of stage {stage}{where}: at most {format_bytes(memory.peak)} of {capacity}",
        *_table(moments),
        *_peak(timeline, stage, memory),
    ]
    return "\n".join([*lines, *_others(timeline, book, stage)])


def moments_of(timeline: Timeline, stage: int, memory: StageMemory) -> Iterator[Moment]:
    """Yield the moments of a stage that people ask for, the peak among them."""
    tasks = np.flatnonzero(timeline.simulated.stage == stage)
    kinds = timeline.simulated.kind[tasks]
    yield _moment(memory, "start", 0.0, 0.0, 0.0)
    train = timeline.answer.table.lowered.graph.workload is Workload.TRAIN
    if train:
        first = int(np.flatnonzero(kinds != Kind.FORWARD)[0])
        yield _moment(memory, "after warm-up", float(timeline.start_s[tasks[first]]), float(memory.full[first]), 0.0)
    task, point = memory.highest()
    others = float(memory.full[task]) - memory.curves[task].kept
    yield _moment(memory, "peak", _at(timeline, tasks[task], point), others + point.activations, point.temporary)
    if train:
        yield _moment(memory, "optimizer", float(timeline.stop_s[tasks[-1]]), 0.0, 0.0)


def _moment(memory: StageMemory, name: str, at_s: float, activations: float, temporary: float) -> Moment:
    held = {part: b for part, b in memory.steady.items() if part != "reserved"}
    changing = {"activations": activations, "temporary": temporary}
    return Moment(name, at_s, {**held, **changing, "reserved": memory.steady["reserved"]})


def _at(timeline: Timeline, task: int, point: Point) -> float:
    """The moment of a point; what comes at the end of a task, there."""
    return float(min(timeline.start_s[task] + point.at_s * timeline.pace, timeline.stop_s[task]))


def _table(moments: list[Moment]) -> Iterator[str]:
    rows = [["", *(m.name for m in moments)], ["after", *(format_time(m.at_s) for m in moments)]]
    for part in moments[0].parts:
        values = [m.parts[part] for m in moments]
        if any(values):
            rows.append([part.replace("_", " "), *(format_bytes(v) for v in values)])
    rows.append(["total", *(format_bytes(sum(m.parts.values())) for m in moments)])
    return (f"  {line}" for line in in_columns(rows).splitlines())


def _peak(timeline: Timeline, stage: int, memory: StageMemory) -> Iterator[str]:
    """Say what runs at the peak, and of how many micro-batches activations are kept then."""
    sim = timeline.simulated
    number, point = memory.highest()
    task = int(np.flatnonzero(sim.stage == stage)[number])
    kind, chunk = Kind(int(sim.kind[task])), int(sim.chunk[task])
    phase = "forward" if kind is Kind.FORWARD else "backward"
    train = timeline.answer.table.lowered.graph.workload is Workload.TRAIN
    place = f"{phase} phase" + (f" of micro-batch {int(sim.micro_batch[task])}" if train else "")
    place += f" in chunk {chunk}" if sim.schedule.num_chunks > 1 else ""
    if point.key >= 0:
        layers = timeline.stages.chunks[stage][chunk].layers
        layer = (layers if kind is Kind.FORWARD else layers[::-1])[point.place]
        node = timeline.nodes[point.region][point.key]
        module = f" at {node.scope.replace('*', str(layer), 1) if layer >= 0 else node.scope}" if node.scope else ""
        place += f", {point.region}/%{point.key} {node.op}{module}"
    elif point.region == "" and memory.rest:
        place += ", where its gradients are copied"
    yield f"  peak: {place}"
    if train:
        batches = f"{sim.peak_in_flight[stage]:g} micro-batch{'es' if sim.peak_in_flight[stage] > 1 else ''}"
        yield f"  activations of {batches} at once, as {sim.schedule.name} runs them"


def _others(timeline: Timeline, book: MemoryBook, fullest: int) -> Iterator[str]:
    """The peaks of the other classes of stages."""
    stages = timeline.stages
    for stage in stages.shown(alone=False):
        if stages.cls[stage] != stages.cls[fullest]:
            parts = book.parts(stages.cls[stage])
            name = stages.name(stage, alone=False).replace(f" (shown: {stage})", "")
            yield f"  {name}: at most {format_bytes(sum(parts.values()))}"
