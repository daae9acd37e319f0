"""Layouts of graphs on stages, kept: plans and graphs that differ in nothing that a layout depends on share it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...graph import Graph
from ...kept import RecentResults
from ...layers import num_layers
from ...schedules.registry import USUAL, schedule_kind
from .partition import Balance
from .stages import FILLED, Recomputed, StageLayout, by_cost, lay_sizes, many_stage_sizes, stage_sizes

# Rows of blocks in memory at a time, a few hundred kilobytes each; layouts, a few kilobytes each; and graphs.
_BALANCES = 32
_LAYOUTS = 8192
_FRAMES = 64
# Rows of blocks that are cut at a time; fewer are cut one by one.
_MANY = 8
Index = NDArray[np.intp]
# Stages, chunks of each, and the schedule.
Degree = tuple[int, int, str]
# Of a graph, all that a layout depends on: its regions, and how often it runs which.
Frame = tuple[tuple[str, ...], tuple[tuple[tuple[str, ...], int], ...]]


def distinct_rows(table: NDArray[np.float64] | Index) -> tuple[Index, Index]:
    """Return the first row of each kind, and which kind each row is of: by its bytes, so that -0.0 is not 0.0.

    >>> distinct_rows(np.array([[1.0, 2.0], [0.0, 2.0], [1.0, 2.0]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    rows = np.ascontiguousarray(table)
    number: dict[bytes, int] = {}
    # Zeros at the end of the bytes are left out of every row alike.
    each = rows.view(f"S{rows.strides[0]}").ravel().tolist()
    which = np.array([number.setdefault(row, len(number)) for row in each], dtype=np.intp)
    first = np.empty(len(number), dtype=np.intp)
    first[which[::-1]] = np.arange(len(rows))[::-1]
    return first, which


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

    __slots__ = ("_asked", "_balances", "_laid", "_num_blocks", "graph")

    def __init__(self, graph: Graph, balances: RecentResults[Hashable, Balance]) -> None:
        """Keep none yet; rows of blocks are kept in `balances`."""
        self.graph = graph
        self._asked = RecentResults[Hashable, StageLayout](_LAYOUTS)
        self._laid = RecentResults[Hashable, StageLayout](_LAYOUTS)
        self._balances = balances
        self._num_blocks = num_layers(graph)

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
            sizes = stage_sizes(self.graph, policy, pp, vpp, costs, self._balance)
            return self._of_sizes((pp, vpp, schedule), sizes, recomputed)

        return self._asked.of((policy, pp, vpp, costs, recomputed, kind.places), laid)

    def lay_all(
        self, policy: str, degree: Degree, costs: NDArray[np.float64] | None, recomputed: Recomputed = 0
    ) -> tuple[list[StageLayout], Index]:
        """Return the layouts that `lay` returns for rows of costs, each once, and which of them each row has.

        `costs` are as (row, region); None where they have no say. Many rows are cut at once.
        """
        pp, vpp, schedule = degree
        parts = pp * (schedule_kind(schedule).chunks_of(vpp) if pp > 1 else vpp)
        if costs is None or not by_cost(self._num_blocks, policy, parts):
            return [self.lay(policy, pp, vpp, None, recomputed, schedule)], np.zeros(1, dtype=np.intp)
        if len(costs) < _MANY or parts > self._num_blocks or policy == FILLED:
            laid = [self.lay(policy, pp, vpp, tuple(row), recomputed, schedule) for row in costs.tolist()]
            return laid, np.arange(len(laid))
        sizes = many_stage_sizes(self.graph, costs, parts)
        first, which = distinct_rows(sizes)
        return [self._of_sizes(degree, tuple(row), recomputed) for row in sizes[first].tolist()], which

    def _of_sizes(self, degree: Degree, sizes: tuple[int, ...], recomputed: Recomputed) -> StageLayout:
        pp, vpp, schedule = degree
        kind = schedule_kind(schedule)
        vpp = kind.chunks_of(vpp) if pp > 1 else vpp
        key = (pp, vpp, sizes, recomputed, kind.places)
        return self._laid.of(key, lambda: lay_sizes(self.graph, pp, vpp, sizes, recomputed, schedule))

    def _balance(self, costs: Sequence[float], first: float, last: float) -> Balance:
        return self._balances.of((tuple(costs), first, last), lambda: Balance(costs, first, last))
