"""The backward phase in two: what the stage before waits for, and gradients of weights, which nobody waits for."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
