"""Memory of the device that needs most: states, kept activations, temporaries, cache and what the software reserves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ir.expr import Expr, as_expr, total
from ..ir.exprtable import ExprTable
from ..ir.graph import Graph, Region
from ..ir.pipelines import BIDIRECTIONAL
from ..ir.plan import Family, PlanTable
from ..ir.points import Points
from ..passes.gathers import held_gathered, saved_gathered
from .in_flight import in_flight, used_at_once
from .liveness import runs_behind
from .moments import Alive, moments
from .stages import Staging
from .states import Held, Placeholders, copied_bytes, held_parameters, states_away

Array = NDArray[np.float64]

PARTS = ("weights", "gradients", "optimizer", "activations", "kv_cache")
# What lies in host memory: states, and activations, of which every micro-batch under way has its own.
AWAY = ("host_states", "host_activations")
_ACTIVATIONS = ("activations", "host_activations")
_KEPT = PARTS.index("activations")


@dataclass(frozen=True, slots=True)
class Holding:
    """What software holds on top of the tensors of the graph, and which stage is asked for.

    Attributes:
        packing: share of what the allocator holds that tensors fill; the rest counts as reserved.
        gradient_copy: whether gradients are tensors of their own, in the model's type, that are added to the running
            sums behind the backward phase, from the buckets of data parallelism where there are replicas.
        last: look at the last stage instead of the fullest.
    """

    packing: float = 1.0
    gradient_copy: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class MemoryProgram:
    """The accounts of a lowered graph as tables: the parts add up, of the moments the largest counts.

    Attributes:
        regions: names of the regions.
        layers: rows (region, part) of what every run of a region holds.
        held: parameters that a stage holds once, however often and in however many of their regions it uses them.
        shared: rows (held, state) of those.
        transient: bytes that one run has alive at once, kept or not, node by node.
        where: of moments alike, the region that runs, and the regions of which a stage has all.
        owner: for each row of `transient`, its place in `where`.
        ends: the last region in forward order; its activations are used at once.
        behind: how often each region runs behind the last run of each, as (region, region).
        placeholders: what fused accumulation hands to autograd instead of gradients.
        copy_share: size of a gradient as computed against its running sum.
    """

    regions: tuple[str, ...]
    layers: ExprTable
    held: tuple[Held, ...]
    shared: ExprTable
    transient: ExprTable
    where: tuple[tuple[int, frozenset[str]], ...]
    owner: tuple[int, ...]
    ends: str
    behind: tuple[tuple[int, ...], ...]
    placeholders: Placeholders
    copy_share: float

    @classmethod
    def of(cls, graph: Graph) -> MemoryProgram:
        """Compile the accounts of a lowered graph."""
        held = tuple(held_parameters(graph))
        once = [h for h in held if not h.each_layer]
        away, names = states_away(graph), tuple(r.name for r in graph.regions)
        own = {r.name: [h for h in held if h.each_layer and r.name in h.regions] for r in graph.regions}
        rows = [e for r in graph.regions for e in _layer_rows(r, own[r.name], away)]
        live = dict.fromkeys(moments(graph)) or {Alive(names[0], frozenset(), as_expr(0)): None}
        where = tuple(dict.fromkeys((names.index(m.region), m.regions) for m in live))
        behind = [runs_behind(graph, name) for name in names]
        return cls(
            names, ExprTable.of(rows), tuple(once),
            ExprTable.of([e for h in once for e in _split(h.states, away)] or [as_expr(0)]),
            ExprTable.of([m.num_bytes for m in live]), where,
            tuple(where.index((names.index(m.region), m.regions)) for m in live), graph.sequence_once()[-1],
            tuple(tuple(b.get(n, 0) for n in names) for b in behind), Placeholders.of(graph), _copy_share(graph),
        )  # fmt: skip

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that any account depends on."""
        tables = (self.layers, self.shared, self.transient, self.placeholders.sizes)
        return frozenset().union(*(t.symbols for t in tables))

    def evaluate(
        self, points: Points, reserve_bytes: float, plans: PlanTable, staging: Staging, holding: Holding = Holding()
    ) -> Mapping[str, Array]:
        """Return bytes of the fullest device for every plan, by part, in the order in which people read them."""
        best = self._fullest(points, plans, staging, holding)
        here = {part: best[part] for part in (*PARTS, "temporary")}
        return here | {"reserved": _sum(here) * (1.0 / holding.packing - 1.0) + reserve_bytes}

    def host_bytes(self, points: Points, plans: PlanTable, staging: Staging) -> Array:
        """Return the bytes that the fullest device keeps in host memory, for every plan."""
        found = self._fullest(points, plans, staging, Holding())
        return np.asarray(sum((found[part] for part in AWAY), np.zeros(len(plans))))

    def _fullest(self, points: Points, plans: PlanTable, staging: Staging, holding: Holding) -> dict[str, Array]:
        """Bytes of the stage that needs most of the device, by part, those in host memory too."""
        env, point = points.of(self.symbols)
        num = int(point.max()) + 1
        rows = self.layers.evaluate(env, num).reshape(len(self.regions), len(PARTS) + len(AWAY), num)
        shared = self.shared.evaluate(env, num)
        live = _largest(self.transient.evaluate(env, num), self.owner, len(self.where))
        empty = self.placeholders.sizes.evaluate(env, num)
        best: dict[str, Array] = {}
        for cls in range(staging.num_classes):
            found = self._stage((rows, shared, live, empty), point, staging, cls, plans)
            if holding.gradient_copy:
                self._copy_gradients(found, rows, point, staging.runs(cls), plans)
            better = staging.is_there(cls) & (holding.last | (_sum(found) > _sum(best))) if best else None
            best = found if better is None else {k: np.where(better, v, best[k]) for k, v in found.items()}
        return best

    def _stage(
        self, tables: tuple[Array, Array, Array, Array], point: NDArray[np.intp], staging: Staging, cls: int,
        plans: PlanTable,
    ) -> dict[str, Array]:  # fmt: skip
        """Bytes of one class of stages; activations of every micro-batch that is under way."""
        rows, shared, live, empty = tables
        runs = staging.runs(cls)
        under_way = in_flight(staging, cls, plans)
        no = np.zeros(len(plans))
        found: dict[str, Array] = dict.fromkeys((*PARTS, *AWAY, "temporary"), no)
        for k, name in enumerate(self.regions):
            if name not in runs:
                continue
            for i, part in enumerate((*PARTS, *AWAY)):
                if rows[k, i].any():
                    kept = self._copies(part, name, under_way, plans)
                    found[part] = found[part] + rows[k, i][point] * (runs[name] * kept)
        for k, (region, names) in enumerate(self.where):
            if names <= runs.keys():
                here = np.all([runs[name] > 0.0 for name in names], axis=0)
                beyond = live[k][point] - self._let_go(region, rows, point, runs)
                found["temporary"] = np.maximum(found["temporary"], np.where(here, beyond, 0.0))
        for i, h in enumerate(self.held):
            there = np.minimum(sum((runs[r] for r in h.regions if r in runs), no), 1.0)
            for j, part in enumerate((*PARTS[:3], AWAY[0])):
                found[part] = found[part] + shared[4 * i + j][point] * there
        found["gradients"] = found["gradients"] + self.placeholders.total(empty, point, self.regions, runs)
        return _of_both_copies(found, plans.family)

    def _copy_gradients(
        self, found: dict[str, Array], rows: Array, point: NDArray[np.intp], runs: Mapping[str, Array], plans: PlanTable
    ) -> None:
        """Add buckets, and the moment when every gradient is there and one micro-batch has let go of what it kept."""
        copy = found["gradients"] * self.copy_share
        names = [(k, name) for k, name in enumerate(self.regions) if name in runs]
        kept = sum((rows[k, _KEPT][point] * runs[name] for k, name in names), np.zeros(len(plans)))
        found["gradients"] = found["gradients"] + np.where(plans.dp > 1.0, copy, 0.0)
        found["temporary"] = np.maximum(found["temporary"], copy - kept)

    def _let_go(self, region: int, rows: Array, point: NDArray[np.intp], runs: Mapping[str, Array]) -> Array:
        """What counts as kept but is in a region's own account, or gone when the region turns to its backward phase."""
        gone = rows[region, _KEPT][point]
        for k, num in enumerate(self.behind[region]):
            if num and self.regions[k] in runs:
                gone = gone + np.minimum(runs[self.regions[k]], float(num)) * rows[k, _KEPT][point]
        return np.asarray(gone)

    def _copies(self, part: str, region: str, under_way: Array, plans: PlanTable) -> Array | float:
        """How many micro-batches' worth of a part a stage keeps: where the forward pass ends, one is used at once."""
        if part not in _ACTIVATIONS:
            return 1.0
        return 1.0 if region == self.ends and used_at_once(plans.family.schedule) else under_way


def _of_both_copies(found: dict[str, Array], family: Family) -> dict[str, Array]:
    """Where a stage holds chunks of two copies of the model, what ZeRO shards, it shards over both."""
    if family.schedule not in BIDIRECTIONAL:
        return found
    sharded = [part for part, stage in (("weights", 3), ("gradients", 2), ("optimizer", 1)) if family.zero >= stage]
    return found | {part: found[part] * 0.5 for part in sharded}


def _layer_rows(region: Region, held: Sequence[Held], away: Sequence[bool]) -> list[Expr]:
    """What every run of a region holds: states of its layer's own parameters, kept activations, cache; what is away."""
    weights, gradients, optimizer, states_there = _split([total(h.states[k] for h in held) for k in range(3)], away)
    there = copied_bytes(region)
    kept = region.saved_bytes - saved_gathered(region) - there
    here = [weights + held_gathered(region), gradients, optimizer, kept, total(_cache_bytes(region))]
    return [*here, states_there, there]


def _split(states: Sequence[Expr], away: Sequence[bool]) -> list[Expr]:
    """States of a rank on the device, and behind them the sum of those in host memory."""
    here = [as_expr(0) if gone else e for e, gone in zip(states, away, strict=True)]
    return [*here, total(e for e, gone in zip(states, away, strict=True) if gone)]


def _cache_bytes(region: Region) -> Iterable[Expr]:
    return (region.by_id[n.key].type.num_bytes for n in region.nodes if n.op == "kv_append")


def _largest(live: Array, owner: Sequence[int], num: int) -> Array:
    """Return the largest row of each owner, at every point."""
    found = np.zeros((num, live.shape[1]))
    for row, place in zip(live, owner, strict=True):
        np.maximum(found[place], row, out=found[place])
    return found


def _copy_share(graph: Graph) -> float:
    sums = (r.by_id[n.key].type.dtype for r in graph.regions for n in r.nodes if n.op == "accumulate")
    return float(graph.dtype.num_bytes / next(sums, graph.dtype).num_bytes)


def _sum(parts: Mapping[str, Array]) -> Array:
    """What lies on the device."""
    return np.asarray(sum((b for part, b in parts.items() if part not in AWAY), np.zeros(1)))
