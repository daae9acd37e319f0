"""Copies of popular experts and where they lie: DeepSeek's Expert Parallelism Load Balancer, from its description.

Source: github.com/deepseek-ai/EPLB, whose README has an example that a test compares with; DeepSeek-V3, arXiv
2412.19437, section 3.4. Experts of a group may be kept on one node (`num_nodes` above 1), or lie anywhere.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import PlanError
from ...ir.records import dataclass

Loads = NDArray[np.float64]
Ids = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Placement:
    """Which expert lies in each place of each layer, places of a rank side by side.

    Attributes:
        experts: layers x places.
        copies: layers x experts, how often each is there.
    """

    experts: Ids
    copies: Ids

    def rank_loads(self, loads: Loads, num_ranks: int) -> Loads:
        """Return rows of each rank, layers x ranks, where the copies of an expert share its rows evenly."""
        each = np.take_along_axis(loads / self.copies, self.experts, axis=1)
        return np.asarray(each.reshape(len(loads), num_ranks, -1).sum(axis=2))


def balanced(loads: Loads, num_places: int, num_ranks: int, num_groups: int = 1, num_nodes: int = 1) -> Placement:
    """Place experts and their copies so that ranks have about equal loads.

    Groups of experts go to nodes, the fullest first, each to the node that has least; the experts of a node with most
    rows a copy get one copy more, until all places are taken; these go to ranks as groups do to nodes. Where nodes
    do not divide groups, all ranks are one node.

    Args:
        loads: rows of each expert, layers x experts.
        num_places: experts and copies together; ranks divide it.
        num_ranks: of expert parallelism; nodes divide it.
        num_groups: of experts, which routing keeps together.
        num_nodes: over which groups are distributed.

    Raises:
        PlanError: places that ranks do not divide, or fewer than experts.
    """
    layers, num = loads.shape
    if num_places % num_ranks or num_places < num:
        raise PlanError(
            f"{num_places} places of {num} experts on {num_ranks} ranks: ranks divide places, one an expert"
        )
    if num_groups % num_nodes or num_places % num_nodes:
        num_groups = num_nodes = 1
    rows = [_of_layer(loads[k], num_places, num_ranks, num_groups, num_nodes) for k in range(layers)]
    experts = np.array(rows, dtype=np.intp)
    copies = np.stack([np.bincount(row, minlength=num) for row in experts])
    return Placement(experts, copies)


def _of_layer(loads: Loads, num_places: int, num_ranks: int, num_groups: int, num_nodes: int) -> list[int]:
    size = len(loads) // num_groups
    node_of_group = dealt(loads.reshape(num_groups, size).sum(axis=1), num_nodes)
    found: list[int] = []
    for groups in node_of_group:
        own = np.concatenate([np.arange(g * size, (g + 1) * size) for g in groups])
        places = own[replicated(loads[own], num_places // num_nodes)]
        each = loads[places] / np.bincount(places, minlength=len(loads))[places]
        found += [int(places[k]) for rank in dealt(each, num_ranks // num_nodes) for k in rank]
    return found


def replicated(loads: Loads, num_places: int) -> Ids:
    """Return the expert in each place: all once, then again and again that with most rows a copy.

    >>> replicated(np.array([8.0, 3.0, 5.0]), 5)
    array([0, 1, 2, 0, 2])
    """
    copies, places = np.ones(len(loads)), list(range(len(loads)))
    for _ in range(num_places - len(loads)):
        most = int(np.argmax(loads / copies))
        copies[most] += 1.0
        places.append(most)
    return np.array(places, dtype=np.intp)


def dealt(loads: Loads, num_packs: int) -> list[list[int]]:
    """Return what is in each pack: equally many, the heaviest first, each in the lightest pack that has room.

    >>> dealt(np.array([5.0, 1.0, 3.0, 4.0]), 2)
    [[0, 1], [3, 2]]
    """
    room = len(loads) // num_packs
    if room == 1:
        return [[k] for k in range(len(loads))]
    packs: list[list[int]] = [[] for _ in range(num_packs)]
    open_packs = [(0.0, k) for k in range(num_packs)]
    for item in np.argsort(-loads, kind="stable").tolist():
        weight, pack = heapq.heappop(open_packs)
        packs[pack].append(item)
        if len(packs[pack]) < room:
            heapq.heappush(open_packs, (weight + float(loads[item]), pack))
    return packs
