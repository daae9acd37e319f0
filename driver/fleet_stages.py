"""Pipeline stages in groups, each on a machine of its own: which stages are alike, and what crosses between groups.

Stages are alike where they run the same regions on the same machine, and send as much inside it and beyond it. Classes
of one group stand side by side in all layouts of a table, so that a place says the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..cost.step.stage_time import Spent
from ..cost.step.stages import Staging, staging_of
from ..ir.graph import Graph
from ..ir.plan import PlanTable
from ..ir.plan.layout.stages import SHARED, StageClass, StageLayout, between_stages, chunk_borders
from ..ir.records import dataclass

Array = NDArray[np.float64]
# Behind the name of a region of what stages send: the group at the other end, or every group that holds a weight.
_LINK, _ALL = "@", "*"
_SENT = "comm.pp"


@dataclass(frozen=True, slots=True)
class GroupedStages:
    """Stages of a table of plans of one kind, each under a layout of its own.

    Attributes:
        staging: their stages; what crosses between groups is a region of its own behind those of the graph.
        group: the group of each class.
    """

    staging: Staging
    group: tuple[int, ...]

    def of(self, group: int) -> Staging:
        """Return the same stages with those of one group alone."""
        mine = np.array([g == group for g in self.group])
        return replace(self.staging, number=np.where(mine, self.staging.number, 0.0))


def grouped_stages(
    graph: Graph, layouts: Sequence[StageLayout], groups: Sequence[int], plans: PlanTable
) -> GroupedStages:
    """Return the stages of plans, one under each layout; `groups` is the group of each stage, from the first on."""
    num = max(groups) + 1
    ends = (*map(str, range(num)), _ALL)
    links = tuple(f"{r.name}{_LINK}{end}" for r in graph.regions if between_stages(r.name) for end in ends)
    classes = [_classes(graph, layout, groups, links) for layout in layouts]
    # How many places each group takes: as many as the layout in which it has most classes.
    most = [max(sum(g == k for g, _ in found) for found in classes) for k in range(num)]
    starts = tuple(accumulate(most[:-1], initial=0))
    width = len(graph.regions)
    empty = StageClass((0,) * width, (0.0,) * (width + len(links)), 0, 0)
    laid = []
    for layout, found in zip(layouts, classes, strict=True):
        row, place, used = [empty] * sum(most), dict[int, int](), list(starts)
        for (group, one), members in found.items():
            row[used[group]] = one
            place |= dict.fromkeys(members, used[group])
            used[group] += 1
        laid.append(replace(layout, classes=tuple(row), stages=tuple(place[i] for i in range(len(groups)))))
    staging = staging_of(graph, laid, np.arange(len(laid)), (plans.stages[0], plans.stages[1]), links)
    return GroupedStages(staging, tuple(g for g, size in enumerate(most) for _ in range(size)))


def over_links(spent: Sequence[Spent], links: Sequence[Spent]) -> list[Spent]:
    """Return what regions spend on each machine, with what they send to others behind each.

    Args:
        spent: by machine, inside it.
        links: by machine, of messages through its outermost network alone. A message between two takes as long as on
            the slower one.
    """
    num, found = len(spent), list[Spent]()
    for g, own in enumerate(spent):
        ends = {f"{_LINK}{h}": (g, h) for h in range(num)} | {f"{_LINK}{_ALL}": tuple(range(num))}
        whole = dict[tuple[str, str, str], Array]()
        for (region, phase, part), seconds in own.items():
            whole[region, phase, part] = seconds
            for end, over in ends.items() if between_stages(region) else ():
                slower = np.maximum.reduce([links[k][region, phase, part] for k in over]) if part == _SENT else seconds
                whole[region + end, phase, part] = slower
        found.append(whole)
    return found


def _classes(
    graph: Graph, layout: StageLayout, groups: Sequence[int], links: Sequence[str]
) -> Mapping[tuple[int, StageClass], list[int]]:
    """The classes of a layout by group, each with its stages, in the order of their first stages."""
    place = {r.name: k for k, r in enumerate(graph.regions)} | {
        name: k for k, name in enumerate(links, len(graph.regions))
    }
    borders = chunk_borders(graph, layout.blocks)
    stage_of = {c: i for i, chunks in enumerate(layout.held) for c in chunks}
    each = [layout.classes[cls] for cls in layout.stages]
    # Weights of which stages of several groups have copies.
    shared = [
        exchange
        for exchange, *holders in (run.regions for run in graph.schedule if not run.count)
        if exchange.startswith(SHARED)
        and len({g for g, one in zip(groups, each, strict=True) if any(one.counts[place[n]] for n in holders)}) > 1
    ]
    found: dict[tuple[int, tuple[int, ...], tuple[float, ...]], list[int]] = {}
    for i, chunks in enumerate(layout.held):
        sent = [*each[i].messages, *(0.0 for _ in links)]
        for c in chunks if borders else ():
            other = groups[stage_of[c - 1 if c else 1]]
            if other != groups[i]:
                sent[place[borders[c]]] -= 1.0
                sent[place[f"{borders[c]}{_LINK}{other}"]] += 1.0
        for exchange in shared:
            sent[place[f"{exchange}{_LINK}{_ALL}"]] = sent[place[exchange]]
            sent[place[exchange]] = 0.0
        found.setdefault((groups[i], each[i].counts, tuple(sent)), []).append(i)
    return {(g, StageClass(counts, sent, at[0], len(at))): at for (g, counts, sent), at in found.items()}
