"""Memory of the device that needs most: states, kept activations, temporaries, cache and what the software reserves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ...ir.caches import kept_caches
from ...ir.graph import Graph, Region
from ...ir.ops import Trait, has
from ...ir.plan import PlanTable
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr, as_expr, total
from ...ir.sizes.exprtable import ExprTable
from ...ir.sizes.points import Points
from ...passes.gathers import held_gathered
from ..step.stages import Staging
from .fullest import ALL, AWAY, KEPT, NUM_STATES, PARTS, STATES, TEMPORARY, GradientCopies, Rules, StateBytes, fullest
from .liveness import runs_behind
from .moments import Alive, moments
from .states import HeldParameter, copied_bytes, held_parameters, kept_bytes, placeholders, states_away

Array = NDArray[np.float64]
Index = NDArray[np.intp]


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


_TENSORS_ALONE = Holding()


@dataclass(frozen=True, slots=True)
class MemoryProgram:
    """The accounts of a lowered graph as a table: the parts add up, of the moments the largest counts.

    Attributes:
        table: rows of bytes: (region, part) of what every run of a region holds, (parameter, state) of what a stage
            holds once, all moments, and the placeholders that fused accumulation hands to autograd.
        bounds: where each of these four ends.
        first: the first moment of each set of moments alike: of one region, where a stage has the same regions.
        rules: what of these a stage has.
        copy_share: size of a gradient as computed against its running sum.
    """

    table: ExprTable
    bounds: tuple[int, int, int, int]
    first: Index
    rules: Rules
    copy_share: float

    @classmethod
    def of(cls, graph: Graph) -> MemoryProgram:
        """Compile the accounts of a lowered graph."""
        held = tuple(held_parameters(graph))
        once = [h for h in held if not h.each_layer]
        away, names = states_away(graph), tuple(r.name for r in graph.regions)
        own = {r.name: tuple(h for h in held if h.each_layer and r.name in h.regions) for r in graph.regions}
        layers = [e for r in graph.regions for e in _layer_rows(r, own[r.name], away)]
        shared = [e for h in once for e in _split(h.states, away)]
        live = _alike(moments(graph)) or {(names[0], frozenset[str]()): {as_expr(0): None}}
        alive = [e for found in live.values() for e in found]
        empty = placeholders(graph)
        rows = (layers, shared, alive, [num_bytes for num_bytes, _ in empty])
        sums = (r.by_id[n.key].type.dtype for r in graph.regions for n in r.nodes if has(n, Trait.ACCUMULATES))
        return cls(
            ExprTable.of([e for part in rows for e in part]),
            cast(tuple[int, int, int, int], tuple(accumulate(map(len, rows)))),
            np.array([0, *accumulate(map(len, live.values()))][:-1], dtype=np.intp),
            _rules(graph, (layers, shared), once, list(live), [counts for _, counts in empty]),
            float(graph.dtype.num_bytes / next(sums, graph.dtype).num_bytes),
        )

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that any account depends on."""
        return self.table.symbols

    def evaluate(
        self,
        points: Points,
        reserve_bytes: float,
        plans: PlanTable,
        staging: Staging,
        holding: Holding = _TENSORS_ALONE,
    ) -> Mapping[str, Array]:
        """Return bytes of the fullest device for every plan, by part, in the order in which people read them."""
        found = dict(zip(ALL, self._fullest(points, plans, staging, holding), strict=True))
        here = {part: found[part] for part in (*PARTS, TEMPORARY)}
        on_device = np.asarray(sum(here.values(), np.zeros(1)))
        # An allocator holds more than tensors fill: with a packing of 0.9, a ninth of their bytes on top; and the
        # software holds a fixed amount (CUDA context, libraries, buffers of NCCL).
        return here | {"reserved": on_device * (1.0 / holding.packing - 1.0) + reserve_bytes}

    def host_bytes(self, points: Points, plans: PlanTable, staging: Staging) -> Array:
        """Return the bytes that the fullest device keeps in host memory, for every plan."""
        found = dict(zip(ALL, self._fullest(points, plans, staging, Holding()), strict=True))
        return np.asarray(sum((found[part] for part in AWAY), np.zeros(len(plans))))

    def _fullest(self, points: Points, plans: PlanTable, staging: Staging, holding: Holding) -> Array:
        """Bytes of the stage that needs most of the device, by part, those in host memory too."""
        env, point = points.of(self.symbols)
        num = int(point.max()) + 1
        values = self.table.evaluate(env, num)
        layers, shared, alive, empty = (values[a:b] for a, b in pairwise((0, *self.bounds)))
        sizes = StateBytes(
            layers.reshape(-1, len(ALL) - 1, num),
            shared.reshape(-1, NUM_STATES, num),
            np.maximum.reduceat(alive, self.first, axis=0),
            empty,
        )
        copies = GradientCopies(self.copy_share if holding.gradient_copy else 0.0, holding.last)
        return fullest(sizes, self.rules, point, plans, staging, copies)


def _alike(found: Iterable[Alive]) -> dict[tuple[str, frozenset[str]], dict[Expr, None]]:
    """Moments by the region that runs and the regions of which a stage has all; each size once."""
    alike: dict[tuple[str, frozenset[str]], dict[Expr, None]] = {}
    for m in found:
        alike.setdefault((m.region, m.regions), {})[m.num_bytes] = None
    return alike


def _rules(
    graph: Graph,
    sizes: tuple[Sequence[Expr], Sequence[Expr]],
    once: Sequence[HeldParameter],
    live: Sequence[tuple[str, frozenset[str]]],
    empty: Sequence[Sequence[int]],
) -> Rules:
    layers, shared = (_rows(part, num) for part, num in zip(sizes, (len(ALL) - 1, NUM_STATES), strict=True))
    names = [r.name for r in graph.regions]
    behind = [runs_behind(graph, name) for name in names]

    def table(rows: Sequence[Sequence[float]]) -> Array:
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(names))

    return Rules(
        tuple(_some(row, STATES) for row in layers),
        tuple(_some(row, KEPT) for row in layers),
        names.index(graph.sequence_once()[-1]),
        np.array([names.index(region) for region, _ in live], dtype=np.intp),
        table([[float(n in needed) for n in names] for _, needed in live]),
        table([[float(b.get(n, 0)) for n in names] for b in behind]),
        table([[float(n in h.regions) for n in names] for h in once]),
        tuple(_some(row, range(NUM_STATES)) for row in shared),
        table(empty),
    )


def _rows(exprs: Sequence[Expr], num: int) -> list[Sequence[Expr]]:
    return [exprs[start : start + num] for start in range(0, len(exprs), num)]


def _some(row: Sequence[Expr], parts: range) -> slice:
    """The shortest stretch of some parts that leaves out nothing but zeros."""
    there = [k for k in parts if row[k] != 0]
    return slice(there[0], there[-1] + 1) if there else slice(0, 0)


# Families of plans share most of their regions: each is looked at once.
@lru_cache(maxsize=512)
def _layer_rows(region: Region, held: tuple[HeldParameter, ...], away: tuple[bool, ...]) -> tuple[Expr, ...]:
    """What every run of a region holds, in the order of `ALL`: states of its own parameters, cache, what it keeps."""
    # Weights that ZeRO 3 keeps gathered between forward and backward are held by every run of the layer.
    weights, gradients, optimizer, states_there = _split([total(h.states[k] for h in held) for k in range(3)], away)
    states = [weights + held_gathered(region), gradients, optimizer, states_there]
    caches = total(v.type.num_bytes for v in kept_caches(region))
    return (*states, caches, kept_bytes(region), copied_bytes(region))


def _split(states: Sequence[Expr], away: Sequence[bool]) -> list[Expr]:
    """States of a rank on the device, and behind them the sum of those in host memory."""
    here = [as_expr(0) if gone else e for e, gone in zip(states, away, strict=True)]
    return [*here, total(e for e, gone in zip(states, away, strict=True) if gone)]
