"""Memory of the device that needs most: states, kept activations, temporaries, cache and what the software reserves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ir.expr import Expr, as_expr, total
from ..ir.exprtable import ExprTable
from ..ir.graph import Graph, Region
from ..ir.plan import PlanTable
from ..ir.points import Points
from ..passes.gathers import held_gathered, saved_gathered
from .liveness import Alive, transient_bytes
from .stages import Staging
from .states import Held, copied_bytes, held_parameters, states_away

Array = NDArray[np.float64]

PARTS = ("weights", "gradients", "optimizer", "activations", "kv_cache")
# What lies in host memory: states, and activations, of which every micro-batch under way has its own.
AWAY = ("host_states", "host_activations")
_ACTIVATIONS = ("activations", "host_activations")


@dataclass(frozen=True, slots=True)
class MemoryProgram:
    """The accounts of a lowered graph as tables: the parts add up, of the temporaries the largest counts.

    Attributes:
        regions: names of the regions.
        layers: rows (region, part) of what every run of a region holds.
        held: parameters that a stage holds once, however often and in however many of their regions it uses them.
        shared: rows (held, state) of those.
        transient: bytes alive at once, node by node.
        beside: sets of regions of which a stage has all where those bytes are alive.
        owner: the set of each row of `transient`.
        ends: the last region in forward order; its activations are used at once.
    """

    regions: tuple[str, ...]
    layers: ExprTable
    held: tuple[Held, ...]
    shared: ExprTable
    transient: ExprTable
    beside: tuple[frozenset[str], ...]
    owner: tuple[int, ...]
    ends: str

    @classmethod
    def of(cls, graph: Graph) -> MemoryProgram:
        """Compile the accounts of a lowered graph."""
        held = tuple(held_parameters(graph))
        once = [h for h in held if not h.each_layer]
        away = states_away(graph)
        rows = [
            e
            for r in graph.regions
            for e in _layer_rows(r, [h for h in held if h.each_layer and r.name in h.regions], away)
        ]
        live = dict.fromkeys(transient_bytes(graph)) or {Alive(frozenset(), as_expr(0)): None}
        beside = tuple(dict.fromkeys(names for names, _ in live))
        return cls(
            tuple(r.name for r in graph.regions), ExprTable.of(rows), tuple(once),
            ExprTable.of([e for h in once for e in h.states] or [as_expr(0)]),
            ExprTable.of([e for _, e in live]), beside, tuple(beside.index(names) for names, _ in live),
            graph.sequence_once()[-1],
        )  # fmt: skip

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that any account depends on."""
        return self.layers.symbols | self.shared.symbols | self.transient.symbols

    def evaluate(self, points: Points, reserve_bytes: float, plans: PlanTable, staging: Staging) -> Mapping[str, Array]:
        """Return bytes of the fullest device for every plan, by part, in the order in which people read them."""
        found = self._fullest(points, plans, staging)
        here = {part: found[part] for part in (*PARTS, "temporary")}
        return here | {"reserved": np.full(len(plans), reserve_bytes)}

    def host_bytes(self, points: Points, plans: PlanTable, staging: Staging) -> Array:
        """Return the bytes that the fullest device keeps in host memory, for every plan."""
        found = self._fullest(points, plans, staging)
        return np.asarray(sum((found[part] for part in AWAY), np.zeros(len(plans))))

    def _fullest(self, points: Points, plans: PlanTable, staging: Staging) -> dict[str, Array]:
        """Bytes of the stage that needs most of the device, by part, those in host memory too."""
        env, point = points.of(self.symbols)
        num = int(point.max()) + 1
        rows = self.layers.evaluate(env, num).reshape(len(self.regions), len(PARTS) + len(AWAY), num)
        shared = self.shared.evaluate(env, num)
        live = _largest(self.transient.evaluate(env, num), self.owner, len(self.beside))
        best: dict[str, Array] = {}
        for cls in range(staging.num_classes):
            found = self._stage((rows, shared, live), point, staging, cls, plans)
            better = staging.is_there(cls) & (_sum(found) > _sum(best)) if best else np.ones(len(plans), dtype=bool)
            best = {k: np.where(better, v, best[k]) for k, v in found.items()} if best else found
        return best

    def _stage(
        self, tables: tuple[Array, Array, Array], point: NDArray[np.intp], staging: Staging, cls: int, plans: PlanTable
    ) -> dict[str, Array]:
        """Bytes of one class of stages; activations of every micro-batch that is under way."""
        rows, shared, live = tables
        runs = staging.runs(cls)
        under_way = in_flight(staging, cls, plans)
        no = np.zeros(len(plans))
        found: dict[str, Array] = dict.fromkeys((*PARTS, "temporary"), no)
        for k, name in enumerate(self.regions):
            if name not in runs:
                continue
            for i, part in enumerate((*PARTS, *AWAY)):
                if rows[k, i].any():
                    kept = self._copies(part, name, under_way, plans)
                    found[part] = found[part] + rows[k, i][point] * (runs[name] * kept)
        for k, names in enumerate(self.beside):
            here = np.all([runs.get(name, no) > 0.0 for name in names], axis=0)
            found["temporary"] = np.maximum(found["temporary"], np.where(here, live[k][point], 0.0))
        for i, h in enumerate(self.held):
            there = np.minimum(sum((runs[r] for r in h.regions if r in runs), np.zeros(len(plans))), 1.0)
            for j, part in enumerate((*PARTS[:3], AWAY[0])):
                found[part] = found[part] + shared[4 * i + j][point] * there
        return found

    def _copies(self, part: str, region: str, under_way: Array, plans: PlanTable) -> Array | float:
        """How many micro-batches' worth of a part a stage keeps: where the forward pass ends, one is used at once."""
        if part not in _ACTIVATIONS:
            return 1.0
        return 1.0 if region == self.ends and plans.family.schedule != "gpipe" else under_way


def in_flight(staging: Staging, cls: int, plans: PlanTable) -> Array:
    """Return how many micro-batches' activations the earliest stage of a class holds at most, in whole stages.

    1F1B: min(m, p - i). Interleaved: min(m v, 2 (p - i - 1) + (v - 1) p + 1) / v, of the stage's layers 1/v each.
    GPipe: m. (Narayanan et al., arXiv 2104.04473; Korthikanti et al., arXiv 2205.05198.)
    """
    p, v, m = staging.stages, staging.chunks, plans.num_micro_batches
    if plans.family.schedule == "gpipe":
        return np.where(p > 1.0, m, 1.0)
    behind = p - staging.first[staging.which, cls]
    warm = np.where(v > 1.0, 2.0 * (behind - 1.0) + (v - 1.0) * p + 1.0, behind)
    return np.asarray(np.minimum(m * v, warm) / v)


def _layer_rows(region: Region, held: Sequence[Held]) -> list[Expr]:
    """What every run of a region holds: states of its layer's own parameters, kept activations, cache."""
    weights, gradients, optimizer = (total(h.states[k] for h in held) for k in range(3))
    kept = region.saved_bytes - saved_gathered(region)
    return [weights + held_gathered(region), gradients, optimizer, kept, total(_cache_bytes(region))]


def _cache_bytes(region: Region) -> Iterable[Expr]:
    return (region.by_id[n.key].type.num_bytes for n in region.nodes if n.op == "kv_append")


def _largest(live: Array, owner: Sequence[int], num_owners: int) -> Array:
    """Return the largest row of each owner, at every point."""
    found = np.zeros((num_owners, live.shape[1]))
    for row, index in zip(live, owner, strict=True):
        np.maximum(found[index], row, out=found[index])
    return found


def _sum(parts: Mapping[str, Array]) -> Array:
    """What lies on the device."""
    return np.asarray(sum((b for part, b in parts.items() if part not in AWAY), np.zeros(1)))
