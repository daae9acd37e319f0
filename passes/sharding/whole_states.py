"""Caches and parameters that a layer reads all of: they rest whole on every rank of `tp`, so that none is gathered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...ir.graph import Graph, Region, Value
from ...ir.states import moved_states

# A state's path, and its region where the path has a star: each region of layers has its own.
StateKey: TypeAlias = tuple[str, str]
StateKeys: TypeAlias = frozenset[StateKey]


def state_key(region: Region, state: Value) -> StateKey:
    """Return the name of a state in a graph."""
    return (region.name if "*" in state.name else "", state.name)


def with_whole_states(shard: Callable[[StateKeys], Graph]) -> Graph:
    """Shard again with more states whole until no message inside a step moves one.

    `shard` shards a graph in which some states rest whole on every rank of `tp`.
    """
    whole: StateKeys = frozenset()
    while True:
        graph = shard(whole)
        moved = {state_key(r, state) for r in graph.regions for _, state in moved_states(r)} - whole
        if not moved:
            return graph
        whole |= moved
