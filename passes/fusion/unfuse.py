"""Attention taken apart into products, softmax and dropout, each a kernel of its own, as before fused attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.errors import NotBuiltError, PlanError
from ...ir.graph import Attrs, Graph, Node, Region, Value
from ...ir.ops import Trait, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import DimAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ...ir.types import DType
from ..base import RegionPass


@dataclass(frozen=True, slots=True)
class Unfuse(RegionPass[Sequence[Node]]):
    """Replace every `attention` by matmul, softmax, dropout (where the model has some) and matmul, backward likewise.

    The softmax kernel masks. What is kept are the probabilities and, with dropout, its mask and result: 5 bytes a
    score at 16 bits, as in Korthikanti et al. (arXiv 2205.05198, equation 1).
    """

    name: ClassVar[str] = "unfuse"
    sharded: ClassVar[bool | None] = False  # scores get their placements from `shard`
    resaves: ClassVar[bool] = True

    def unchanged(self, graph: Graph) -> None:
        """Refuse attention=unfused where there is no attention."""
        raise PlanError(f"attention=unfused changes nothing in {graph.name}: it has no attention; use attention=flash")

    def matches(self, region: Region) -> Iterable[Sequence[Node]]:
        """Yield all attention of a region, forward before backward."""
        found = [n for n in region.nodes if has(n, Trait.ATTENDS)]
        return [found] if found else []

    def rewrite(self, region: RegionRewriter, match: Sequence[Node]) -> None:
        """Put products, softmax and dropout in the place of each."""
        scores: dict[int, _Scores] = {}
        for node in match:
            if has(node, Trait.BACKWARD):
                region.replace(node, *_backward(region, node, scores[node.inputs[4]]))
            else:
                scores[node.key] = _Scores.of(region, node)
                region.replace(node, *scores[node.key].nodes(node))


@dataclass(frozen=True, slots=True)
class _Scores:
    """The values of one unfused attention; without dropout `weights` are the probabilities and there is no mask."""

    scores: int
    probabilities: int
    weights: int
    mask: int | None

    @classmethod
    def of(cls, region: RegionRewriter, node: Node) -> _Scores:
        """Add them; NotBuiltError for attention that is more than products and a softmax."""
        q, k = (region.values[i].type for i in node.inputs[:2])
        attrs = node.attrs
        assert isinstance(attrs, AttentionAttrs)
        if q.dims[1] != k.dims[1] or len(node.inputs) > 3 or attrs.softcap:
            raise NotBuiltError(
                f"unfused attention at {node.scope}: only as many heads for keys as for queries, "
                "no sinks, no bias, no chosen keys and no soft cap"
            )
        like = Value(0, q.with_dims((*q.dims[:3], k.dims[2])), 0)
        scores, probabilities = region.add(like), region.add(like)
        if not attrs.dropout > 0:
            return cls(scores, probabilities, probabilities, None)
        return cls(
            scores,
            probabilities,
            region.add(like),
            region.add(replace(like, type=replace(like.type, dtype=DType.BOOL))),
        )

    def nodes(self, node: Node) -> Iterator[Node]:
        """Yield what is in the place of attention."""
        q, k, v = node.inputs[:3]
        yield _node(node, MatmulAttrs("abcd,abed->abce"), (q, k), self.scores)
        yield _node(node, DimAttrs(3), (self.scores,), self.probabilities)
        if self.mask is not None:
            drop = _node(node, ElementwiseAttrs(("dropout",)), (self.probabilities,), self.weights)
            yield replace(drop, outputs=(self.weights, self.mask))
        yield _node(node, MatmulAttrs("abce,abed->acbd"), (self.weights, v), node.key)


def _backward(region: RegionRewriter, node: Node, s: _Scores) -> Iterator[Node]:
    dout, q, k, v, result = node.inputs[:5]
    dq, dk, dv = node.outputs[:3]
    like = Value(0, region.values[s.scores].type, 0)
    grad = region.add(like)
    yield _node(node, MatmulAttrs("acbd,abed->abce"), (dout, v), grad, result)
    yield _node(node, MatmulAttrs("abce,acbd->abed"), (s.weights, dout), dv, result)
    if s.mask is not None:
        kept = region.add(like)
        yield _node(node, ElementwiseAttrs(("dropout_bwd",)), (grad, s.mask), kept, s.weights)
        grad = kept
    dscores = region.add(like)
    yield replace(_node(node, DimAttrs(3), (grad, s.probabilities), dscores, s.probabilities), op="softmax_bwd")
    yield _node(node, MatmulAttrs("abce,abed->abcd"), (dscores, k), dq, s.scores)
    yield _node(node, MatmulAttrs("abce,abcd->abed"), (dscores, q), dk, s.scores)


def _node(like: Node, attrs: Attrs, inputs: tuple[int, ...], output: int, forward: int | None = None) -> Node:
    op = "matmul" if isinstance(attrs, MatmulAttrs) else "softmax" if isinstance(attrs, DimAttrs) else "elementwise"
    return replace(like, op=op, inputs=inputs, outputs=(output,), attrs=attrs, forward=forward)
