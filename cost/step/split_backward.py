"""The backward phase in two: what the stage before waits for, and gradients of weights, which nobody waits for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...backends.pricing.program import PricedEntry
from ...backends.pricing.timing import Timing
from ...ir.graph import Graph, Phase, Region
from ...ir.plan.layout.stages import between_stages

Array = NDArray[np.float64]


def weight_gradients(graph: Graph) -> frozenset[tuple[str, int]]:
    """Return region and key of the backward nodes that lead to gradients of parameters and nothing else.

    Left are those on the way to what the region before takes. A node that makes both kinds at once (the backward pass
    of a norm) is on the way. What is recomputed, is so before the first part, which needs it.
    """
    return frozenset(
        (region.name, key)
        for region in graph.regions
        if not between_stages(region.name)
        for key in _weight_nodes(region)
    )


def weight_gradient_s(timing: Timing, nodes: frozenset[tuple[str, int]] | None = None) -> Mapping[str, Array]:
    """Return the seconds of computation for gradients of weights in one run of each region, plan by plan.

    `nodes` are the graph's `weight_gradients` where they are known already. Messages among them are left out: what of
    those is exposed is the roll-up's to say.
    """
    nodes = weight_gradients(timing.program.graph) if nodes is None else nodes

    def region(entry: PricedEntry) -> str | None:
        return entry.region if entry.message is None and (entry.region, entry.key) in nodes else None

    return timing.sums(region, once=True)


# Families of plans share most of their regions: each is looked at once.
@lru_cache(maxsize=512)
def _weight_nodes(region: Region) -> tuple[int, ...]:
    """Keys of backward nodes from which no output of the backward phase can be reached."""
    needed = {p.value for p in region.outputs if region.phase_of(p.value) is Phase.BACKWARD}
    found: list[int] = []
    for node in reversed(region.nodes):
        if node.phase is not Phase.BACKWARD:
            continue
        if needed.isdisjoint(node.outputs):
            found.append(node.key)
        else:
            needed.update(node.inputs)
    return tuple(found)
