"""Layouts of graphs on stages, kept: plans and graphs that differ in nothing that a layout depends on share it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ...graph import Graph
from ...kept import RecentResults
from ...layers import num_layers
from ...schedules.registry import USUAL, schedule_kind
from .partition import Balance
from .stages import Recomputed, StageLayout, by_cost, lay_sizes, many_stage_sizes, stage_sizes

# Rows of blocks in memory at a time, a few hundred kilobytes each; layouts, a few kilobytes each; and graphs.
_BALANCES = 32
_LAYOUTS = 8192
_FRAMES = 64
# Rows of blocks that are cut at a time; fewer are cut one by one.
_MANY = 8
# Stages, chunks of each, costs by which blocks are shared out if they have a say, and the schedule.
Asked = tuple[int, int, tuple[float, ...] | None, str]
# Of a graph, all that a layout depends on: its regions, and how often it runs which.
Frame = tuple[tuple[str, ...], tuple[tuple[tuple[str, ...], int], ...]]


def frame_of(graph: Graph) -> Frame:
    """Return all that layouts of a graph depend on."""
    return tuple(r.name for r in graph.regions), tuple((run.regions, run.count) for run in graph.schedule)


class Layouts:
    """Layouts asked for so far, by all that they depend on: one of these may serve all graphs of a model."""

    __slots__ = ("_balances", "_frames")

    def __init__(self) -> None:
        """Keep none yet."""
        self._frames = RecentResults[Frame, LayoutsOf](_FRAMES)
        self._balances = RecentResults[Hashable, Balance](_BALANCES)

    def of(self, graph: Graph) -> LayoutsOf:
        """Return the layouts of a graph, or of another one with the same regions in the same order."""
        return self._frames.of(frame_of(graph), lambda: LayoutsOf(graph, self._balances))


class LayoutsOf:
    """Layouts of one graph asked for so far."""

    __slots__ = ("_asked", "_balances", "_cut", "_laid", "_num_blocks", "graph")

    def __init__(self, graph: Graph, balances: RecentResults[Hashable, Balance]) -> None:
        """Keep none yet; rows of blocks are kept in `balances`."""
        self.graph = graph
        self._asked = RecentResults[Hashable, StageLayout](_LAYOUTS)
        self._laid = RecentResults[Hashable, StageLayout](_LAYOUTS)
        self._balances = balances
        self._num_blocks = num_layers(graph)
        # Sizes of chunks that are known before they are asked for, by costs and number.
        self._cut: dict[tuple[tuple[float, ...] | None, int], tuple[int, ...]] = {}

    def lay(
        self,
        policy: str,
        pp: int,
        vpp: int,
        costs: tuple[float, ...] | None = None,
        recomputed: Recomputed = 0,
        schedule: str = USUAL,
    ) -> StageLayout:
        """Return what `lay_stages` would, the same object wherever it is equal; the same errors."""
        kind = schedule_kind(schedule)
        vpp = kind.chunks_of(vpp) if pp > 1 else vpp

        def laid() -> StageLayout:
            sizes = self._cut.get((costs, pp * vpp)) or stage_sizes(self.graph, policy, pp, vpp, costs, self._balance)
            key = (pp, vpp, sizes, recomputed, kind.places)
            return self._laid.of(key, lambda: lay_sizes(self.graph, pp, vpp, sizes, recomputed, schedule))

        return self._asked.of((policy, pp, vpp, costs, recomputed, kind.places), laid)

    def lay_all(self, policy: str, asked: Sequence[Asked], recomputed: Recomputed = 0) -> list[StageLayout]:
        """Return what `lay` does for each of many; rows with costs of their own are cut many at a time."""
        new: dict[int, dict[tuple[float, ...], None]] = {}
        for pp, vpp, costs, schedule in asked:
            parts = pp * (schedule_kind(schedule).chunks_of(vpp) if pp > 1 else vpp)
            if costs is not None and by_cost(self._num_blocks, policy, parts) and parts <= self._num_blocks:
                new.setdefault(parts, {})[costs] = None
        self._cut = {
            (costs, parts): sizes
            for parts, rows in new.items()
            if len(rows) >= _MANY
            for costs, sizes in zip(rows, many_stage_sizes(self.graph, list(rows), parts), strict=True)
        }
        found = [self.lay(policy, pp, vpp, costs, recomputed, schedule) for pp, vpp, costs, schedule in asked]
        self._cut = {}
        return found

    def _balance(self, costs: Sequence[float], first: float, last: float) -> Balance:
        return self._balances.of((tuple(costs), first, last), lambda: Balance(costs, first, last))
