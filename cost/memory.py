"""Memory of one device: states, kept activations, temporaries, cache and what the software reserves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ir.expr import Expr, as_expr, total
from ..ir.exprtable import ExprTable
from ..ir.graph import Graph, Region, Role, Value
from ..ir.ops.pointwise import optimizer_state_bytes
from ..ir.points import Points
from .liveness import live_bytes

Array = NDArray[np.float64]

PARTS = ("weights", "gradients", "optimizer", "activations", "kv_cache")


@dataclass(frozen=True, slots=True)
class MemoryProgram:
    """The accounts of a lowered graph as tables: the parts add up, of the temporaries the largest counts."""

    parts: ExprTable
    transient: ExprTable

    @classmethod
    def of(cls, graph: Graph) -> MemoryProgram:
        """Compile the accounts of a lowered graph."""
        params = list(distinct_parameters(graph))
        trained = {(region.name, p) for region in graph.regions for p, _ in region.grads}
        with_grad = [(r, v, n) for r, v, n in params if (r.name, v.id) in trained or _tied_grad(graph, v)]
        rows = [
            total(v.type.num_bytes * n for _, v, n in params),
            total(_gradient_bytes(graph) if trained else ()),
            total(_state_numel(graph, r, v) * (optimizer_state_bytes(v.type.dtype) * n) for r, v, n in with_grad),
            graph.saved_bytes,
            total(_cache_bytes(graph)),
        ]
        live = [e for region in graph.regions for e in live_bytes(region)]
        return cls(ExprTable.of(rows), ExprTable.of(sorted(set(live), key=str) or [as_expr(0)]))

    def evaluate(self, points: Points, reserve_bytes: float) -> Mapping[str, Array]:
        """Return bytes a device for every plan, by part, in the order in which people read them."""
        env, point = points.of(self.parts.symbols | self.transient.symbols)
        num = int(point.max()) + 1
        parts = self.parts.evaluate(env, num)
        found = {name: row[point] for name, row in zip(PARTS, parts, strict=True)}
        found["temporary"] = self.transient.evaluate(env, num).max(axis=0)[point]
        found["reserved"] = np.full(len(point), reserve_bytes)
        return found


def distinct_parameters(graph: Graph) -> Iterable[tuple[Region, Value, int]]:
    """Yield every parameter with the number of its copies over the layers; a tied one comes once."""
    seen: set[tuple[str, str]] = set()
    for region in graph.regions:
        for v in region.of_role(Role.PARAM):
            key = (region.name if "*" in v.name else "", v.name)
            if key not in seen:
                seen.add(key)
                yield region, v, graph.counts[region.name]


def _state_numel(graph: Graph, region: Region, v: Value) -> Expr:
    """Elements a rank keeps optimizer states of: those whose reduced gradient it holds."""
    for r in (region, *graph.regions):
        for p, g in r.grads:
            if r.by_id[p].name == v.name and (r.name == region.name or "*" not in v.name):
                return r.by_id[g].type.numel
    return v.type.numel


def _tied_grad(graph: Graph, v: Value) -> bool:
    """Whether a parameter that several regions use gets its gradient in another one."""
    return any(r.by_id[p].name == v.name for r in graph.regions for p, _ in r.grads if "*" not in v.name)


def _gradient_bytes(graph: Graph) -> Iterable[Expr]:
    """Running sums where there are some; what is reduced once a step is reduced in place."""
    for region in graph.regions:
        sums = {n.inputs[0]: n.key for n in region.nodes if n.op == "accumulate"}
        held = list(sums.values()) or [g for _, g in region.grads]
        for grad in held:
            yield region.by_id[grad].type.num_bytes * graph.counts[region.name]


def _cache_bytes(graph: Graph) -> Iterable[Expr]:
    for region in graph.regions:
        for node in region.nodes:
            if node.op == "kv_append":
                yield region.by_id[node.key].type.num_bytes * graph.counts[region.name]
