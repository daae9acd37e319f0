"""Layouts of graphs on stages, kept: plans and graphs that differ in nothing that a layout depends on share it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .graph import Graph
from .kept import Kept
from .partition import Balance
from .pipelines import BIDIRECTIONAL, V_SHAPED, chunks_of
from .stages import Layout, lay_sizes, stage_sizes

# Rows of blocks in memory at a time, a few hundred kilobytes each; and layouts, a few kilobytes each.
_BALANCES = 32
_LAYOUTS = 8192


class Layouts:
    """Layouts asked for so far, by all that they depend on: one of these may serve all graphs of a model."""

    __slots__ = ("_asked", "_balances", "_laid")

    def __init__(self) -> None:
        """Keep none yet."""
        self._asked = Kept[Hashable, Layout](_LAYOUTS)
        self._laid = Kept[Hashable, Layout](_LAYOUTS)
        self._balances = Kept[Hashable, Balance](_BALANCES)

    def of(
        self, graph: Graph, policy: str, pp: int, vpp: int, costs: tuple[float, ...] | None = None,
        recomputed: int = 0, schedule: str = "1f1b",
    ) -> Layout:  # fmt: skip
        """Return what `lay_stages` would, the same object wherever it is equal; the same errors."""
        vpp = chunks_of(schedule, vpp) if pp > 1 else vpp
        frame = (tuple(r.name for r in graph.regions), tuple((run.regions, run.count) for run in graph.schedule))
        where = schedule if schedule in V_SHAPED + BIDIRECTIONAL else ""

        def laid() -> Layout:
            sizes = stage_sizes(graph, policy, pp, vpp, costs, self._balance)
            key = (frame, pp, vpp, sizes, recomputed, where)
            return self._laid.of(key, lambda: lay_sizes(graph, pp, vpp, sizes, recomputed, schedule))

        return self._asked.of((frame, policy, pp, vpp, costs, recomputed, where), laid)

    def _balance(self, costs: Sequence[float], first: float, last: float) -> Balance:
        return self._balances.of((tuple(costs), first, last), lambda: Balance(costs, first, last))
