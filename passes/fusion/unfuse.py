"""Attention taken apart into products, softmax and dropout, each a kernel of its own, as before fused attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import ClassVar

from ...ir.errors import NotBuiltError, PlanError
from ...ir.graph import NO_ATTRS, Attrs, Graph, Node, Region, Value
from ...ir.ops import Trait, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import DimAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ...ir.types import DType, TensorType
from ..base import Pass, PassResult, require_sharded, rewritten


@dataclass(frozen=True, slots=True)
class Unfuse(Pass):
    """Replace every `attention` by matmul, softmax, dropout (where the model has some) and matmul, backward likewise.

    The softmax kernel masks. What is kept are the probabilities and, with dropout, its mask and result: 5 bytes a
    score at 16 bits, as in Korthikanti et al. (arXiv 2205.05198, equation 1).
    """

    name: ClassVar[str] = "unfuse"

    def requires(self, graph: Graph) -> None:
        """Scores get their placements from `shard`."""
        require_sharded(self.name, graph, sharded=False)

    def unchanged(self, graph: Graph) -> None:
        """Refuse attention=unfused where there is no attention."""
        raise PlanError(f"attention=unfused changes nothing in {graph.name}: it has no attention; use attention=flash")

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that hold attention."""
        return rewritten(graph, _rewrite, resave=True)


@dataclass
class _Parts:
    """A region under reconstruction: its values, its nodes, and what each attention became."""

    region: Region
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    made: dict[int, _Scores] = field(default_factory=dict)

    def node(
        self,
        like: Node,
        op: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        attrs: Attrs = NO_ATTRS,
        forward: int | None = None,
    ) -> None:
        self.nodes.append(
            replace(like, op=op, inputs=tuple(inputs), outputs=tuple(outputs), attrs=attrs, forward=forward)
        )

    def value(self, dims: tuple[Dim, ...], kind: DType) -> int:
        ident = self.region.fresh_id + len(self.values)
        self.values.append(Value(ident, TensorType(dims, kind), ident))
        return ident


@dataclass(frozen=True, slots=True)
class _Scores:
    """The values of one unfused attention; without dropout `weights` are the probabilities and there is no mask."""

    scores: int
    probabilities: int
    weights: int
    mask: int | None
    result: int


def _rewrite(region: Region) -> Region:
    if not any(has(n, Trait.ATTENDS, backward=False) for n in region.nodes):
        return region
    parts = _Parts(region)
    gone: set[int] = set()
    for node in region.nodes:
        if has(node, Trait.ATTENDS, backward=False):
            _forward(parts, node)
            gone.add(node.outputs[1])
        elif has(node, Trait.ATTENDS):
            _backward(parts, node)
        else:
            parts.nodes.append(node)
    values = tuple(v for v in (*region.values, *parts.values) if v.id not in gone)
    return replace(region, values=values, nodes=tuple(parts.nodes))


def _forward(parts: _Parts, node: Node) -> None:
    q, k, v = node.inputs[:3]
    types = [parts.region.by_id[i].type for i in (q, k)]
    attrs = node.attrs
    assert isinstance(attrs, AttentionAttrs)
    if types[0].dims[1] != types[1].dims[1] or len(node.inputs) > 3 or attrs.softcap:
        raise NotBuiltError(
            f"unfused attention at {node.scope}: only as many heads for keys as for queries, "
            "no sinks, no bias, no chosen keys and no soft cap"
        )
    dims = (*types[0].dims[:3], types[1].dims[2])
    scores, probabilities = (parts.value(dims, types[0].dtype) for _ in range(2))
    parts.node(node, "matmul", (q, k), (scores,), MatmulAttrs("abcd,abed->abce"))
    parts.node(node, "softmax", (scores,), (probabilities,), DimAttrs(3))
    weights, mask = probabilities, None
    if attrs.dropout > 0:
        weights, mask = parts.value(dims, types[0].dtype), parts.value(dims, DType.BOOL)
        parts.node(node, "elementwise", (probabilities,), (weights, mask), ElementwiseAttrs(("dropout",)))
    parts.node(node, "matmul", (weights, v), node.outputs[:1], MatmulAttrs("abce,abed->acbd"))
    parts.made[node.key] = _Scores(scores, probabilities, weights, mask, node.key)


def _backward(parts: _Parts, node: Node) -> None:
    dout, q, k, v, result = node.inputs[:5]
    dq, dk, dv = node.outputs[:3]
    s = parts.made[result]
    kind = next(w.type for w in parts.values if w.id == s.scores)
    grad = parts.value(kind.dims, kind.dtype)
    parts.node(node, "matmul", (dout, v), (grad,), MatmulAttrs("acbd,abed->abce"), s.result)
    parts.node(node, "matmul", (s.weights, dout), (dv,), MatmulAttrs("abce,acbd->abed"), s.result)
    if s.mask is not None:
        kept = parts.value(kind.dims, kind.dtype)
        parts.node(node, "elementwise", (grad, s.mask), (kept,), ElementwiseAttrs(("dropout_bwd",)), s.weights)
        grad = kept
    dscores = parts.value(kind.dims, kind.dtype)
    parts.node(node, "softmax_bwd", (grad, s.probabilities), (dscores,), DimAttrs(3), s.probabilities)
    parts.node(node, "matmul", (dscores, k), (dq,), MatmulAttrs("abce,abed->abcd"), s.scores)
    parts.node(node, "matmul", (dscores, q), (dk,), MatmulAttrs("abce,abcd->abed"), s.scores)
