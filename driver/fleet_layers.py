"""Layers shared out over stages on machines of several speeds and memories: slower machines get fewer.

A first split has the least slowest chunk, chunk times added up layer by layer on the machine that holds the chunk.
Then one layer at a time moves from one chunk to another, as long as the step, estimated in full, gets shorter or what
does not fit becomes less. Each round of moves is one table of layouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import PlanError
from ..ir.graph import Workload
from ..ir.layers import layer_row
from ..ir.plan.layout.stages import stage_sizes
from ..ir.schedules.registry import schedule_kind
from .fleet import MixedPricer, MixedTable

Array = NDArray[np.float64]
# Chunks from which layers are taken in a round, and chunks to which they go: the dearest, and the cheapest.
_FROM, _TO = 8, 16
_ROUNDS = 256


def layers_of(pricer: MixedPricer) -> tuple[int, ...]:
    """Return the layers of each chunk, in the order of the model: as the plan lists them, even, or balanced.

    PlanError where there are more chunks than layers, or a list does not fit.
    """
    plan, graph = pricer.plan, pricer.lowered.graph
    policy, vpp = plan.family.pp_layout, schedule_kind(plan.family.schedule).chunks_of(plan.vpp)
    if policy not in ("auto", "balanced"):
        return stage_sizes(graph, policy, plan.pp, vpp)
    # It refuses chunks that no layers are left for.
    best = stage_sizes(graph, "even", plan.pp, vpp)
    num = plan.pp * vpp
    if num == 1 or not all(best):
        return best
    starts = [best, first_split(pricer, num)]
    found, fitting = _descent(pricer, starts, in_memory=True)
    return found if fitting else _descent(pricer, starts, in_memory=False)[0]


def _descent(pricer: MixedPricer, tried: Sequence[tuple[int, ...]], *, in_memory: bool) -> tuple[tuple[int, ...], bool]:
    """Move layers while that helps, and say whether the result fits; without `in_memory` memories have no say."""
    best, value = tried[0], [np.inf]
    for _ in range(_ROUNDS):
        values = _values(pricer, pricer.table(tried), in_memory)
        first = min(range(len(tried)), key=values.__getitem__)
        if not values[first] < value:
            break
        best, value = tried[first], values[first]
        tried = list(_moves(pricer, best, in_memory))
        if not tried:
            break
    return best, value[0] <= 0.0


def first_split(pricer: MixedPricer, num: int) -> tuple[int, ...]:
    """Return layers by chunk whose dearest chunk takes least, and of these the least sum of squares."""
    row = layer_row(pricer.lowered.graph)
    stages = schedule_kind(pricer.plan.family.schedule).placed(pricer.plan.pp, num // pricer.plan.pp)
    seconds = pricer.layer_seconds()
    groups = [pricer.fleet.groups[where[0]] for where in stages]
    sums = [
        np.concatenate([[0.0], np.cumsum([sum(s.get(n, 0.0) for n in unit) for unit in row.units])]) for s in seconds
    ]
    ends = [sum(seconds[g].get(n, 0.0) for n in names) for g, names in ((groups[0], row.head), (groups[-1], row.tail))]
    # The cost of every run of layers, from one to another; infinite where there is none.
    place = np.arange(len(row.units) + 1)
    there = place[None, :] > place[:, None]
    cost = [np.where(there, sums[g][None, :] - sums[g][:, None], np.inf) for g in groups]
    cost[0], cost[-1] = cost[0] + ends[0], cost[-1] + ends[1]
    ceiling = _ends(cost, np.maximum)[0] * (1.0 + 1e-12)
    return _ends([np.where(c <= ceiling, c * c, np.inf) for c in cost], np.add)[1]


def _ends(cost: Sequence[Array], join: np.ufunc) -> tuple[float, tuple[int, ...]]:
    """The least cost of runs one behind the other, joined by a sum or a maximum, and the lengths of the runs."""
    reached, before = cost[0][0], list[NDArray[np.intp]]()
    for each in cost[1:]:
        ways = join(reached[:, None], each)
        before.append(ways.argmin(axis=0))
        reached = ways.min(axis=0)
    ends = [len(reached) - 1]
    for steps in reversed(before):
        ends.append(int(steps[ends[-1]]))
    ends.append(0)
    if not np.isfinite(reached[-1]):
        raise PlanError(f"{len(cost[0]) - 1} layers cannot fill {len(cost)} chunks")
    return float(reached[-1]), tuple(b - a for a, b in zip(ends[::-1], ends[-2::-1], strict=False))


def _moves(pricer: MixedPricer, sizes: tuple[int, ...], in_memory: bool) -> Iterator[tuple[int, ...]]:
    """Splits with one layer more in one chunk and one less in another."""
    weight = _weights(pricer, sizes, in_memory)
    dearest = sorted(range(len(sizes)), key=lambda c: -weight[c])
    for here in [c for c in dearest if sizes[c] > 1][:_FROM]:
        for there in dearest[::-1][:_TO]:
            if here != there:
                yield tuple(n - (c == here) + (c == there) for c, n in enumerate(sizes))


def _weights(pricer: MixedPricer, sizes: tuple[int, ...], in_memory: bool) -> list[float]:
    """What each chunk's stage takes of a micro-batch, against the slowest; where it is overfull, more than any."""
    table = pricer.table([sizes])
    each = np.array([t.forward_s[0] + t.backward_s[0] for t in table.step.stages])
    weight = each / (each.max() or 1.0)
    if in_memory:
        weight += 1e3 * pricer.beyond_by_class(table)[:, 0]
    layout, found = table.stages.staging.layouts[0], [0.0] * len(sizes)
    for stage, chunks in enumerate(layout.held):
        for c in chunks:
            found[c] = float(weight[layout.stages[stage]])
    return found


def _values(pricer: MixedPricer, table: MixedTable, in_memory: bool) -> list[list[float]]:
    """What each layout is judged by: how overfull it is, its step, and how uneven its stages are.

    Of inference first the slowest stage, which sets the pace of many batches: one batch alone is fastest where slow
    systems have no layers.
    """
    number = table.stages.staging.number[table.stages.staging.which]
    each = np.stack([t.forward_s + t.backward_s for t in table.step.stages], axis=1)
    beyond = pricer.beyond_by_class(table) if in_memory else np.zeros_like(each.T)
    with np.errstate(over="ignore"):  # what is beyond any number the answer refuses
        columns = [(number * beyond.T).sum(axis=1), table.step.time_s, (number * each * each).sum(axis=1)]
    if pricer.lowered.source.workload is not Workload.TRAIN:
        columns.insert(1, np.where(number > 0.0, each, 0.0).max(axis=1))
    return [[float(v) for v in row] for row in np.stack(columns, axis=1)]
