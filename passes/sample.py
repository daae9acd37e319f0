"""Tokens drawn from the logits of each sequence's last position, as a serving step ends."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from ..ir.graph import NO_ATTRS, Attrs, Graph, Node, Port, Region, Value, Workload
from ..ir.meaning import In, Meaning, OperatorCall, Out
from ..ir.ops import Trait, has
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.ops.tensors.normalize import ReduceAttrs
from ..ir.placement import REPLICATE, Shard
from ..ir.records import dataclass
from ..ir.sizes.expr import Dim, as_dim, product, symbol
from ..ir.sizes.shares import evened
from ..ir.types import DType
from .base import Pass, PassResult, require_sharded

# Axes over which a vocabulary may be split, innermost first.
_AXES, _SCOPE = ("tp", "cp"), "sampler"


@dataclass(frozen=True, slots=True)
class Sample(Pass):
    """Gather logits over the ranks that have a part of the vocabulary, and draw a token of each row.

    One kernel reads the logits once, in fp32: the greatest for greedy decoding, or with Gumbel noise for sampling, as
    `sampling_from_logits` of FlashInfer. Limits (top-k, top-p), penalties and log-probabilities cost more.
    """

    name: ClassVar[str] = "sample"

    def requires(self, graph: Graph) -> None:
        """Which ranks have which logits comes from `shard`."""
        require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the region that ends the model."""
        last = graph.region(graph.sequence_once()[-1])
        if graph.workload is Workload.TRAIN or not last.outputs:
            return PassResult(graph, changed=False)
        made = _sampled(last)
        return PassResult(graph.with_regions(tuple(made if r is last else r for r in graph.regions)), changed=True)


@dataclass
class _Tail:
    """A region with nodes behind its own."""

    region: Region
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def add(self, op: str, given: Value, like: Value, attrs: Attrs = NO_ATTRS) -> Value:
        """Add a node with one input, and a result like some value."""
        ident = self.region.fresh_id + len(self.values)
        made = replace(like, id=ident, storage=ident)
        self.values.append(made)
        self.nodes.append(Node(op, (given.id,), (ident,), attrs, _SCOPE))
        return made


def _sampled(region: Region) -> Region:
    first, *others = region.outputs
    tail = _Tail(region)
    logits = _whole(tail, region.by_id[first.value])
    dim = logits.type.rank - 1
    wide = replace(logits, type=replace(logits.type, dtype=DType.FP32))
    cast = logits if logits.type == wide.type else tail.add("cast", logits, wide)
    token = replace(logits, type=replace(logits.type, dims=logits.type.dims[:dim], dtype=DType.INT64))
    drawn = tail.add("reduce", cast, token, ReduceAttrs("argmax", (dim,)))
    greedy = Meaning((OperatorCall("aten.argmax", (("self", In(0)), ("dim", dim))),), (Out(0),))
    tail.nodes[-1] = replace(tail.nodes[-1], meaning=greedy)
    nodes = (replace(n, kernel=drawn.id) if has(n, Trait.CASTS) else n for n in tail.nodes)
    outputs = (Port(first.name, drawn.id), *others)
    return replace(region, values=(*region.values, *tail.values), nodes=(*region.nodes, *nodes), outputs=outputs)


def _whole(tail: _Tail, logits: Value) -> Value:
    """Gather a vocabulary that is split."""
    dim = logits.type.rank - 1
    cut = [a for a, p in logits.placements if a in _AXES and isinstance(p, Shard) and p.dim == dim]
    if not cut:
        return logits
    *outer, width = logits.type.dims
    axes = sorted(cut, key=_AXES.index)
    full: Dim = as_dim(evened(width) * product(map(symbol, axes)))
    placements = tuple((a, REPLICATE if a in axes else p) for a, p in logits.placements)
    like = replace(logits, type=logits.type.with_dims((*outer, full)), placements=placements)
    attrs = CollectiveAttrs("+".join(axes), dim, "logits of all ranks, of which tokens are drawn")
    return tail.add("all_gather", logits, like, attrs)
