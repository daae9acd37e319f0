"""Minimum traffic of a rank in a step of inference: weights and the cache once, states of scans twice.

    MBU = bytes / (bandwidth of memory x time)

Of a table of embeddings only a few rows are read, and of experts the ones that rows are sent to. What a step writes
between kernels is not counted: better fusion makes a step faster, and the share higher.
Source of the figure: Databricks, "LLM inference performance engineering" (model bandwidth utilization).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ..ir.caches import read_caches
from ..ir.graph import Graph, Region, Role
from ..ir.ops import Trait, has, work_of
from ..ir.ops.base import ExpertsRead
from ..ir.plan import IMBALANCE, PlanTable
from ..ir.records import dataclass
from ..ir.sizes.expr import Expr, total
from ..ir.sizes.masking import touched_share

Array = NDArray[np.float64]
# What reads a few rows of a table.


@dataclass(frozen=True, slots=True)
class MustMove:
    """Bytes of one pass over a lowered graph, of all stages together, as expressions.

    Attributes:
        num_bytes: of weights and caches.
        experts: weights of experts that are among them, each with how often it is read.
    """

    num_bytes: Expr
    experts: tuple[tuple[ExpertsRead, int], ...]

    @classmethod
    def of(cls, graph: Graph) -> MustMove:
        """Add up what the regions of a lowered graph read."""
        counts = graph.counts
        parts = [e * counts[r.name] for r in graph.regions for e in (*_weights(r), *_caches(r))]
        works = ((work_of(r, n), counts[r.name]) for r in graph.regions for n in r.nodes)
        return cls(total(parts), tuple((w.experts, count) for w, count in works if w.experts is not None))

    def evaluate(self, plans: PlanTable) -> Array:
        """Return bytes of a pass of one micro-batch on an average rank, plan by plan."""
        env: Mapping[str, Array] = {**plans.columns, IMBALANCE: np.ones(len(plans))}
        found = np.asarray(self.num_bytes.evaluate(env), dtype=np.float64)
        for read, count in self.experts:
            rows, num = (np.asarray(e.evaluate(env)) for e in (read.rows, read.num_experts))
            found = found - count * np.asarray(read.weight_bytes.evaluate(env)) * (1.0 - touched_share(rows, num))
        return np.asarray(found / plans.stages[0])


def _weights(region: Region) -> Iterator[Expr]:
    for v in region.of_role(Role.PARAM):
        if any(not has(node, Trait.LOOKS_UP, Trait.READS_TABLE) for node in region.users.get(v.id, ())):
            yield v.type.num_bytes


def _caches(region: Region) -> Iterator[Expr]:
    """Keys and values are read; states are read and written again."""
    for node in region.nodes:
        if has(node, Trait.WRITES_CACHE):
            yield region.by_id[node.key].type.num_bytes * (1 if has(node, Trait.APPENDS) else 2)
    yield from (v.type.num_bytes for v in read_caches(region))
