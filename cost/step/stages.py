"""Pipeline stages of a table of plans: each distinct layout once, and which of them a plan has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...ir.graph import Graph, Region, Role
from ...ir.layers import num_layers
from ...ir.ops import works_of
from ...ir.plan import PlanTable
from ...ir.plan.layout.layouts import Layouts, distinct_rows
from ...ir.plan.layout.stages import FILLED, Recomputed, StageLayout, between_stages, by_cost
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr, total
from ...ir.sizes.exprtable import ExprTable
from ...ir.sizes.points import Points, distinct

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Staging:
    """Stage classes of every plan, from the first stage on; a plan with fewer classes than others has empty ones.

    Attributes:
        layouts: the distinct layouts.
        which: the layout of each plan.
        counts: runs of a region in one pass of a stage, as (layout, class, region).
        messages: runs of what a region sends between stages that a stage waits for, in the same way.
        first: earliest stage of a class, as (layout, class).
        number: stages of a class, as (layout, class); 0 where a layout has no such class.
        regions: names of the regions, in the order of `counts`.
        chunks: chunks a stage, plan by plan.
        stages: stages, plan by plan.
        share: part of the micro-batches that run each region a stage holds, plan by plan: 1, or 1/2 of two copies.
    """

    layouts: tuple[StageLayout, ...]
    which: Index
    counts: Array
    messages: Array
    first: Array
    number: Array
    regions: tuple[str, ...]
    stages: Array
    chunks: Array
    share: Array

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The class of every stage from the first on, of each layout."""
        return tuple(layout.stages for layout in self.layouts)

    def part(self, plans: slice | Index) -> Staging:
        """Return the stages of some plans."""
        return replace(
            self, which=self.which[plans], stages=self.stages[plans], chunks=self.chunks[plans], share=self.share[plans]
        )

    @property
    def num_classes(self) -> int:
        """The most classes that any plan has."""
        return int(self.counts.shape[1])

    def runs(self, cls: int) -> dict[str, Array]:
        """Return region -> how often it runs in one pass of a stage of this class, plan by plan; absent: never."""
        table = self.counts[:, cls, :]
        own = ((k, name) for k, name in enumerate(self.regions) if not between_stages(name))
        return {name: table[self.which, k] for k, name in own if table[:, k].any()}

    def sent(self, cls: int) -> dict[str, Array]:
        """Return region -> how often a stage of this class waits in one pass for what it sends between stages."""
        table = self.messages[:, cls, :]
        return {name: table[self.which, k] for k, name in enumerate(self.regions) if between_stages(name)}

    def runs_in_all(self, regions: Sequence[str]) -> Array:
        """Return how often these regions run in one pass of a micro-batch, plan by plan."""
        places = [self.regions.index(name) for name in regions]
        every = (self.counts[:, :, places].sum(axis=2) * self.number).sum(axis=1)
        return np.asarray(every[self.which] * self.share)

    def only(self, cls: int) -> Staging:
        """Return the same layouts with one class of stages alone."""
        one = slice(cls, cls + 1)
        return replace(
            self,
            counts=self.counts[:, one],
            messages=self.messages[:, one],
            first=self.first[:, one],
            number=self.number[:, one],
        )

    def is_there(self, cls: int) -> NDArray[np.bool_]:
        """Return which plans have a stage of this class."""
        return np.asarray(self.number[self.which, cls] > 0)


@dataclass(frozen=True, slots=True)
class StageProgram:
    """A lowered graph ready to be laid on stages: what each region costs a rank, as its policy counts.

    That is tensor FLOPs of one run; where stages are filled, elements of its matrices. `num_blocks` are the layers that
    stages share out.
    """

    graph: Graph
    policy: str
    costs: ExprTable
    num_blocks: int
    recomputed: Recomputed = 0
    layouts: Layouts = field(default_factory=Layouts, compare=False, repr=False)

    @classmethod
    def of(
        cls, graph: Graph, policy: str = "auto", recomputed: Recomputed = 0, layouts: Layouts | None = None
    ) -> StageProgram:
        """Compile the costs by which stages are balanced; of each chunk the first so many layers are recomputed.

        Layouts go to and come from `layouts`, which may serve other graphs too.
        """
        costs, num_blocks = _costs(graph, policy), num_layers(graph)
        return cls(graph, policy, costs, num_blocks, recomputed, Layouts() if layouts is None else layouts)

    def laid(self, policy: str, recomputed: Recomputed) -> StageProgram:
        """Return the same graph laid out in another way: see `of`."""
        if (policy, recomputed) == (self.policy, self.recomputed):
            return self
        costs = self.costs if FILLED not in (policy, self.policy) else _costs(self.graph, policy)
        return replace(self, policy=policy, costs=costs, recomputed=recomputed)

    def evaluate(self, plans: PlanTable, points: Points) -> Staging:
        """Lay every plan on its stages; PlanError when one has more chunks than layers."""
        pp, vpp = plans.stages
        degree, pair = list[tuple[int, int, str]](), np.empty(len(plans), dtype=np.intp)
        for kind, rows in plans.schedules():
            own, which = _distinct(pp[rows], vpp[rows])
            pair[rows] = which + len(degree)
            degree += [(p, v, kind.name) for p, v in own]
        # A layout whose costs have no say is the same whatever they are.
        said = [by_cost(self.num_blocks, self.policy, p * v) for p, v, _ in degree]
        shares = self._shares(points) if any(said) else None
        kept, index = self.layouts.of(self.graph), np.empty(len(plans), dtype=np.intp)
        number: dict[int, int] = {}
        layouts: dict[int, StageLayout] = {}
        for d, has_say in enumerate(said):
            rows = np.flatnonzero(pair == d)
            if shares is None or not has_say:
                found, which = kept.lay_all(self.policy, degree[d], None, self.recomputed)
            else:
                kinds, met = np.unique(shares[1][rows], return_inverse=True)
                found, of_own = kept.lay_all(self.policy, degree[d], shares[0][kinds], self.recomputed)
                which = of_own[met]
            layouts |= {id(layout): layout for layout in found}
            places = [number.setdefault(id(layout), len(number)) for layout in found]
            index[rows] = np.array(places, dtype=np.intp)[which]
        return staging_of(self.graph, list(layouts.values()), index, (pp, vpp))

    def _shares(self, points: Points) -> tuple[Array, Index] | None:
        """Distinct costs by which stages are balanced, as (row, region), and the row of each plan; None if all are 0.

        Costs are against the dearest, rounded: plans that differ in nothing else have one layout.
        """
        env, point = points.of(self.costs.symbols)
        costs = self.costs.evaluate(env, int(point.max()) + 1)
        if not costs.any():
            return None
        rounded = np.round(costs / np.maximum(costs.max(axis=0), 1.0), 9).T
        first, which = distinct_rows(rounded)
        return rounded[first], which[point]


def _costs(graph: Graph, policy: str) -> ExprTable:
    cost_of = matrix_sizes if policy == FILLED else tensor_flops
    return ExprTable.of([cost_of(region) for region in graph.regions])


def matrix_sizes(region: Region) -> Expr:
    """Return the elements of the matrices that a region reads, on a rank."""
    return total(v.type.numel for v in region.of_role(Role.PARAM) if len(v.type.dims) > 1)


# Families of plans share most of their regions: each is added up once.
@lru_cache(maxsize=512)
def tensor_flops(region: Region) -> Expr:
    """Return the tensor FLOPs of one run of a region, on a rank."""
    return total(work.tensor_flops for work in works_of(region))


def _distinct(pp: Array, vpp: Array) -> tuple[list[tuple[int, int]], Index]:
    """Return the distinct (pp, vpp) and which of them each plan has."""
    base = int(vpp.max()) + 1
    code = (pp * base + vpp).astype(np.intp)
    first, which = distinct(code, int(code.max()) + 1)
    return [divmod(c, base) for c in code[first].tolist()], which


def staging_of(
    graph: Graph, layouts: Sequence[StageLayout], which: Index, stages: tuple[Array, Array], links: tuple[str, ...] = ()
) -> Staging:
    """Return the stages of plans of which each has one of these layouts.

    `stages` are the stages of each plan and the chunks of each stage; `links` names what classes send beside what the
    regions of the graph do, in the order in which their messages have it behind those.
    """
    most = max(len(layout.classes) for layout in layouts)
    names = tuple(r.name for r in graph.regions)
    counts = np.zeros((len(layouts), most, len(names)))
    messages = np.zeros((len(layouts), most, len(names) + len(links)))
    first, number = np.zeros((len(layouts), most)), np.zeros((len(layouts), most))
    for i, layout in enumerate(layouts):
        for k, c in enumerate(layout.classes):
            counts[i, k], messages[i, k], first[i, k], number[i, k] = c.counts, c.messages, c.first, c.number
    share = np.array([1.0 / layout.copies for layout in layouts])[which]
    return Staging(tuple(layouts), which, counts, messages, first, number, (*names, *links), *stages, share)
