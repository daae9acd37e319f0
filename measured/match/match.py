"""Each call of a trace at its place in a step: by shape and order, else by class and order, else by what is before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from itertools import product
from statistics import median
from typing import TypeAlias

import numpy as np

from ...ir.records import dataclass
from ..traces.kinds import KernelKind
from ..traces.ran import Flags, Ints, Stretch
from ..traces.trace import KINDS, RankTrace
from .calls import OpCalls, calls_of, in_steps
from .merged import merged_places
from .planned import PlannedStep
from .positions import Positions, aligned
from .sizes import Key

# A stretch of a step and the sizes of what runs in it.
Place: TypeAlias = tuple[int, Key]
# Share of the time of products that has to be found by the tokens of the prediction; below, others are tried.
_ENOUGH = 0.5
_ANCHORS = (KernelKind.GEMM, KernelKind.ATTENTION, KernelKind.COLLECTIVE)
# Classes of nodes that run as kernels of a class.
_CLASSES = {
    KernelKind.GEMM: ("matmul", "experts"),
    KernelKind.ATTENTION: ("attention",),
    KernelKind.COLLECTIVE: ("communication",),
}


class How(IntEnum):
    """By what a call was matched; `BETWEEN` is what runs behind a node that was matched and before the next."""

    NOTHING = 0
    SHAPE = 1
    CLASS = 2
    BETWEEN = 3
    OPTIMIZER = 4


@dataclass(frozen=True, slots=True)
class Matched:
    """A trace beside a prediction.

    Attributes:
        trace: the trace.
        positions: the nodes of a step in their order.
        calls: what ran.
        at: the position of each call; of what is between two nodes that of the first, -1 where there is none.
        how: by what each was matched, as numbers of `How`.
        counted: which calls are counted: those in marked steps where any step is marked.
        steps: how many steps these are.
        tokens: tokens of a pass that the trace's products have; 0 where none says.
        merged: nodes that ran as one product each time.
    """

    trace: RankTrace
    positions: Positions
    calls: OpCalls
    at: Ints
    how: Ints
    counted: Flags
    steps: int
    tokens: int
    merged: tuple[tuple[int, ...], ...] = ()


def match(trace: RankTrace, planned: PlannedStep, stage: int = 0, num_steps: int | None = None) -> Matched:
    """Match what a rank ran to the nodes of its pipeline stage.

    `num_steps` is for traces without marks; where it is not given, products say how many steps they hold.

    UsageError and NotUnderstoodError as `RankTrace.counted`.
    """
    trace.counted(num_steps)
    calls, positions = calls_of(trace), Positions.of(planned, stage)
    tokens = _tokens(calls, positions)
    matching = _Matching.of(calls, positions, tokens)
    marked = len(trace.steps) if num_steps is None else 0
    runs = in_steps(calls, marked)
    for rows in runs:
        matching.by_shape(rows)
        matching.by_class(rows)
        matching.between(rows)
    counted = np.zeros(len(calls), dtype=np.bool_)
    counted[np.concatenate(runs)] = True
    steps = marked or num_steps or max(round(median(matching.repeats or [1.0])), 1)
    return Matched(
        trace, positions, calls, matching.at, matching.how, counted, steps, tokens, tuple(sorted(matching.merged))
    )


def _tokens(calls: OpCalls, positions: Positions) -> int:
    """Return the tokens of a pass by which most of the time of products is found; those of the prediction if enough."""
    products = np.flatnonzero((calls.kind == KINDS.index(KernelKind.GEMM)) & (calls.key >= 0))
    whole = calls.time_us[products].sum()

    def found(tokens: int) -> float:
        keys = positions.keys(tokens)
        known = np.array([key in keys for key in calls.keys], dtype=np.bool_)
        return float(calls.time_us[products][known[calls.key[products]]].sum()) if len(products) else 0.0

    if found(positions.tokens) >= _ENOUGH * whole:
        return positions.tokens
    sizes = {size for k in np.unique(calls.key[products]).tolist() for size in calls.keys[k][1][1:]}
    best = max(sorted(sizes), key=found, default=0)
    return best if best and found(best) > found(positions.tokens) else positions.tokens


@dataclass(frozen=True, slots=True)
class _Matching:
    """A matching as it grows: the position of each call, by what it was found, and how often a step is in the trace.

    `places` are the positions of each key by stretch; with `split` the trace says what is of the backward phase.
    `repeats` say how often the calls of each key run as often as in one step.
    """

    calls: OpCalls
    positions: Positions
    places: Mapping[Place, Sequence[int]]
    merged: frozenset[tuple[int, ...]]
    split: bool
    at: Ints
    how: Ints
    repeats: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, calls: OpCalls, positions: Positions, tokens: int) -> _Matching:
        """Match nothing yet; nodes that ran as one product have their place under its key alone."""
        split = bool((calls.stretch == Stretch.BACKWARD).any())
        plain = positions.by_key(tokens, split)
        pairs = np.unique(np.stack((calls.stretch * split, calls.key)), axis=1).T.tolist()
        there = {(part, calls.keys[key]) for part, key in pairs if key >= 0}
        sums = {
            place: found
            for place, found in merged_places(positions, tokens, split).items()
            if place in there and place not in plain
        }
        inside = np.isin(positions.node, [k for found in sums.values() for k in found.nodes])
        alone = {place: [spot for spot in spots if not inside[spot]] for place, spots in plain.items()}
        places = {place: spots for place, spots in alone.items() if spots} | {p: f.first for p, f in sums.items()}
        at, how = np.full(len(calls), -1, dtype=np.int64), np.zeros(len(calls), dtype=np.int64)
        return cls(calls, positions, places, frozenset(f.nodes for f in sums.values()), split, at, how)

    def by_shape(self, rows: Ints) -> None:
        """Match calls of a step by their keys: as often as in the step in order, else where the order of keys says."""
        groups: dict[Place, list[int]] = {}
        stretch = self.calls.stretch[rows] * self.split
        for row, part, key in zip(rows.tolist(), stretch.tolist(), self.calls.key[rows].tolist(), strict=True):
            if key >= 0 and (part, self.calls.keys[key]) in self.places:
                groups.setdefault((part, self.calls.keys[key]), []).append(row)
        self.repeats.extend(len(found) / len(self.places[place]) for place, found in groups.items())
        odd = {place for place, found in groups.items() if len(found) % len(self.places[place])}
        hints = self._hints(groups) if odd else {}
        for place, found in groups.items():
            spots = self.places[place]
            self.how[found] = How.SHAPE
            if place not in odd:
                self.at[found] = np.resize(spots, len(found))
                continue
            taken = {hints[row] for row in found if row in hints}
            free = iter([spot for spot in spots if spot not in taken])
            self.at[found] = [hints[row] if row in hints else next(free, spots[-1]) for row in found]

    def _hints(self, groups: Mapping[Place, Sequence[int]]) -> Mapping[int, int]:
        """Return the positions of calls that the order of all keys gives, for a trace of part of a step."""
        numbers = {place: k for k, place in enumerate(groups)}
        planned = sorted((spot, numbers[place]) for place in groups for spot in self.places[place])
        ran = sorted((row, numbers[place]) for place, found in groups.items() for row in found)
        spots = aligned([s for s, _ in planned], [k for _, k in planned], [k for _, k in ran])
        return {row: spot for (row, _), spot in zip(ran, spots, strict=True) if spot >= 0}

    def by_class(self, rows: Ints) -> None:
        """Match what no shape says in order, where there are as many calls of a class as nodes of it that are left."""
        calls = self.calls
        kinds = np.array([n.kind for n in self.positions.planned.nodes])[self.positions.node]
        left = np.ones(len(self.positions), dtype=np.bool_)
        left[self.at[rows][self.at[rows] >= 0]] = False
        parts = (Stretch.FORWARD, Stretch.BACKWARD) if self.split else (Stretch.FORWARD,)
        for kind, part in product(_ANCHORS, parts):
            mine = rows[(calls.kind[rows] == KINDS.index(kind)) & (self.how[rows] == How.NOTHING)]
            if kind is KernelKind.GEMM:
                # A product whose sizes are known and are no node's is none of them.
                mine = mine[calls.key[mine] < 0]
            found = mine[calls.stretch[mine] * self.split == part]
            spots = np.flatnonzero(
                left & np.isin(kinds, _CLASSES[kind]) & (self.positions.stretch * self.split == part)
            )
            if len(spots) and len(found) and len(found) % len(spots) == 0:
                self.at[found], self.how[found] = np.resize(spots, len(found)), How.CLASS
                self.repeats.append(len(found) / len(spots))

    def between(self, rows: Ints) -> None:
        """Give what is left the position of the last call before it that was matched.

        Products and attention that were not matched are nodes that the prediction does not have; messages run beside.
        """
        at, how, kinds = self.at, self.how, self.calls.kind[rows]
        apart = np.isin(kinds, [KINDS.index(kind) for kind in (*_ANCHORS, KernelKind.COPY)])
        anchor = (how[rows] != How.NOTHING) & (kinds != KINDS.index(KernelKind.COLLECTIVE))
        last = np.maximum.accumulate(np.where(anchor, np.arange(len(rows)), -1))
        before = np.where(last >= 0, at[rows][last], -1)
        update = self.calls.stretch[rows] == Stretch.OPTIMIZER
        left = (how[rows] == How.NOTHING) & (~apart | update)
        at[rows[left]] = before[left]
        how[rows[left]] = np.where(update[left], How.OPTIMIZER, How.BETWEEN)
