"""Model FLOPs of a step: the work the model asks for, not what a machine repeats or replicates."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..ir.graph import Graph, Phase, Region
from ..ir.ops import works_of
from ..ir.ops.base import AttentionShape
from ..ir.records import dataclass
from ..ir.sizes.expr import Expr, as_expr
from ..ir.sizes.fixed_sizes import fixed_sizes
from ..ir.sizes.masking import executed_share

Array = NDArray[np.float64]


MODEL_PHASES = frozenset({Phase.FORWARD, Phase.BACKWARD})
REPEATED = frozenset({Phase.RECOMPUTE})


class Convention(StrEnum):
    """How masked attention counts: `full` takes the whole square, `causal` only what the mask leaves."""

    FULL = "full"
    CAUSAL = "causal"


@dataclass(frozen=True, slots=True)
class _Attention:
    """Attention FLOPs of one kind of mask, apart because a mask's share is no polynomial."""

    flops: Expr
    q_len: Expr
    kv_len: Expr
    causal: bool
    window: int
    balanced: bool


# Families of plans share most of their regions: each is looked at once.
@lru_cache(maxsize=512)
def _counted(
    region: Region, count: int, phases: frozenset[Phase]
) -> tuple[tuple[Phase, Expr, AttentionShape | None], ...]:
    """The model's work of each node in some phases: tensor FLOPs of all runs of the region, and what it attends to."""
    nodes = ((node.phase, work) for node, work in zip(region.nodes, works_of(region), strict=True))
    return tuple(
        (phase, work.tensor_flops * (count * work.model_share), work.attention)
        for phase, work in nodes
        if phase in phases
    )


@dataclass(frozen=True, slots=True)
class ModelFlops:
    """FLOPs of one pass over the unsharded graph, per phase, as expressions over batch, seq and kv.

    A pass over a graph of a fixed batch is of so many samples.
    """

    dense: Mapping[Phase, Expr]
    attention: Mapping[Phase, tuple[_Attention, ...]]
    fixed_batch: int | None = None

    @classmethod
    def of(cls, graph: Graph, phases: frozenset[Phase] = MODEL_PHASES) -> ModelFlops:
        """Add up the tensor FLOPs of some phases, kernels' own recomputation left out.

        Of a traced graph this is the model's work; of a lowered one, what a rank does for a micro-batch.
        """
        dense: dict[Phase, Expr] = {}
        masked: dict[Phase, list[_Attention]] = {}
        for region in graph.regions:
            for phase, flops, a in _counted(region, graph.counts[region.name], phases):
                if a is None:
                    dense[phase] = dense.get(phase, as_expr(0)) + flops
                    continue
                masked.setdefault(phase, []).append(_Attention(flops, a.q_len, a.kv_len, a.causal, a.reach, a.balanced))
        return cls(dense, {p: tuple(a) for p, a in masked.items()}, fixed_sizes(graph)[0])

    def total(self, env: Mapping[str, Array], convention: Convention) -> Array:
        """Return FLOPs for arrays of batch, seq and kv."""
        parts = [np.asarray(e.evaluate(env)) for e in self.dense.values()]
        for attentions in self.attention.values():
            for a in attentions:
                flops = np.asarray(a.flops.evaluate(env))
                if convention is Convention.CAUSAL:
                    q, kv = np.asarray(a.q_len.evaluate(env)), np.asarray(a.kv_len.evaluate(env))
                    flops = flops * executed_share(q, kv, a.causal, a.window, a.balanced)
                parts.append(flops)
        found = np.asarray(sum(parts[1:], parts[0])) if parts else np.zeros(1)
        passes = 1.0 if self.fixed_batch is None or "batch" not in env else env["batch"] / self.fixed_batch
        return np.asarray(found * passes)
