"""An estimate as the events of a Chrome trace: stages as processes, streams as threads, nodes as slices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from ....driver.estimate import Estimate
from ....ir.records import dataclass
from ..levels import Levels, levels_of
from ..memory import MemoryBook
from ..nodes import short
from ..spent import pace_once
from ..timeline import Timeline, timeline_of
from .events import process
from .stage_events import Links, StageEvents
from .tracks import PHASES, Slice, Tracks


@dataclass(frozen=True, slots=True)
class Trace:
    """What is written: the timeline, the stages shown, and how much of each micro-batch."""

    timeline: Timeline
    shown: tuple[int, ...]
    alone: bool
    levels: Levels
    memory: MemoryBook

    @property
    def num_processes(self) -> int:
        """The step as a whole, and the stages shown."""
        return 1 + len(self.shown)

    def processes(self) -> Iterator[Iterator[str]]:
        """Yield the events of the step as a whole, then those of one stage after the other; a thread's are in order."""
        yield self._overview()
        links = Links.of(self.timeline)
        for stage in self.shown:
            name = self.timeline.stages.name(stage, self.alone)
            memory = self.memory.stage(stage)
            yield StageEvents(self.timeline, links, self.levels, self.shown, stage, memory).all(name)

    def _overview(self) -> Iterator[str]:
        """The step in its phases, as the stage that has most to do once a step runs it."""
        timeline, once = self.timeline, pace_once(list(self.timeline.spent))
        num = timeline.stages.schedule.num_micro_batches
        yield from process(0, "step", 0)
        tracks = Tracks(0)
        reduced_s = timeline.last_s + once.reduce.time_s
        batches = f"{num} micro-batch{'es' if num > 1 else ''}"
        parts = {f"{part}_us": short(s * 1e6) for part, s in timeline.answer.breakdown_s.items() if s}
        args = json.dumps(parts, separators=(",", ":"))[1:-1]
        for name, start_s, end_s, inside in (
            ("gather parameters", 0.0, timeline.pipeline_s, ""),
            (batches, timeline.pipeline_s, timeline.last_s, args),
            ("reduce gradients", timeline.last_s, reduced_s, ""),
            ("update", reduced_s, timeline.end_s, ""),
        ):
            yield from tracks.add(PHASES, Slice(name, "phase", start_s, end_s, inside))

    def about(self) -> Mapping[str, object]:
        """Say what the trace is of, and what it leaves out."""
        answer, timeline = self.timeline.answer, self.timeline
        memory = self.memory.stage(self.memory.fullest())
        return {
            "schema": "slipstick/trace/1",
            "model": answer.table.lowered.source.name,
            "system": answer.table.system.name,
            "plan": answer.plan.degrees,
            "schedule": timeline.stages.schedule.name,
            "micro_batches": timeline.stages.schedule.num_micro_batches,
            "stages": len(timeline.stages.cls),
            "stages_shown": list(self.shown),
            "step_time_s": answer.metrics["step_time_s"],
            "breakdown_s": dict(answer.breakdown_s),
            "hidden_comm_s": dict(answer.hidden_comm_s),
            "peak_mem_bytes": memory.peak,
            "memory_capacity_bytes": answer.table.system.chip.hbm_bytes,
            "stretch": timeline.pace,
            "skew_s": timeline.skew_s,
            "left_out": list(self.levels.left_out),
        }


def trace_of(answer: Estimate, detail: str = "auto", every_stage: bool = False) -> Trace:
    """Return the trace of an estimate: the earliest stage of each class or all, in the detail asked for."""
    timeline = timeline_of(answer)
    shown = tuple(timeline.stages.shown(every_stage))
    return Trace(timeline, shown, every_stage, levels_of(timeline, shown, detail), MemoryBook(timeline))
