"""Tokens drawn from the logits of each sequence's last position, as a serving step ends."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ..ir.editing.rewriter import RegionRewriter
from ..ir.graph import Graph, Node, Port, Region, Value, Workload
from ..ir.meaning import In, Meaning, OperatorCall, Out
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.ops.tensors.normalize import ReduceAttrs
from ..ir.placement import CP, REPLICATE, TP, Shard, group_axes
from ..ir.records import dataclass
from ..ir.sizes.expr import Dim, as_dim, product, symbol
from ..ir.sizes.shares import evened
from ..ir.types import DType
from .base import Pass, PassResult

# Axes over which a vocabulary may be split, innermost first.
_AXES, _SCOPE = (TP, CP), "sampler"


@dataclass(frozen=True, slots=True)
class Sample(Pass):
    """Gather logits over the ranks that have a part of the vocabulary, and draw a token of each row.

    One kernel reads the logits once, in fp32: the greatest for greedy decoding, or with Gumbel noise for sampling, as
    `sampling_from_logits` of FlashInfer. Limits (top-k, top-p), penalties and log-probabilities cost more.
    """

    name: ClassVar[str] = "sample"
    sharded: ClassVar[bool | None] = True  # which ranks have which logits comes from `shard`
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.PREFILL, Workload.DECODE)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the region that ends the model."""
        last = graph.region(graph.sequence_once()[-1])
        if not last.outputs:
            return PassResult(graph, changed=False)
        made = _sampled(last)
        return PassResult(graph.with_regions(tuple(made if r is last else r for r in graph.regions)), changed=True)


def _sampled(region: Region) -> Region:
    first, *others = region.outputs
    at = RegionRewriter(region)
    logits = _whole(at, region.by_id[first.value])
    dim = logits.type.rank - 1
    wide = replace(logits, type=replace(logits.type, dtype=DType.FP32))
    read = logits.id if logits.type == wide.type else at.add(wide)
    token = at.add(replace(logits, type=replace(logits.type, dims=logits.type.dims[:dim], dtype=DType.INT64)))
    if read != logits.id:
        at.append(Node("cast", (logits.id,), (read,), scope=_SCOPE, kernel=token))
    greedy = Meaning((OperatorCall("aten.argmax", (("self", In(0)), ("dim", dim))),), (Out(0),))
    at.append(Node("reduce", (read,), (token,), ReduceAttrs("argmax", (dim,)), _SCOPE, meaning=greedy))
    at.outputs = (Port(first.name, token), *others)
    return at.finish()


def _whole(at: RegionRewriter, logits: Value) -> Value:
    """Gather a vocabulary that is split."""
    dim = logits.type.rank - 1
    cut = [a for a, p in logits.placements if a in _AXES and isinstance(p, Shard) and p.dim == dim]
    if not cut:
        return logits
    *outer, width = logits.type.dims
    axes = tuple(sorted(cut, key=_AXES.index))
    full: Dim = as_dim(evened(width) * product(map(symbol, axes)))
    placements = tuple((a, REPLICATE if a in axes else p) for a, p in logits.placements)
    like = replace(logits, type=logits.type.with_dims((*outer, full)), placements=placements)
    attrs = CollectiveAttrs(group_axes(axes), dim, "logits of all ranks, of which tokens are drawn")
    whole = at.add(like)
    at.append(Node("all_gather", (logits.id,), (whole,), attrs, _SCOPE))
    return at.values[whole]
