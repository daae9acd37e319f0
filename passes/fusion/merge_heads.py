"""Queries, keys and values as one tensor that attention reads in part, as code with one projection for all has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import ClassVar

from ...ir.graph import NO_ATTRS, Attrs, Graph, Node, Phase, Region, Value, Workload
from ...ir.meaning import Meaning, OperatorCall, Out
from ...ir.ops import Trait, has
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import total
from ...ir.types import TensorType
from ..base import Pass, PassResult, require_sharded, rewritten

_HEAD = 3  # the last dim of queries, keys and values


@dataclass(frozen=True, slots=True)
class MergeHeads(Pass):
    """Let attention read the queries as a view of all three, and keys and values from tensors of their own.

    nanotron has one projection. It views the queries in its result, whose storage then stays whole, and copies keys
    and values into another tensor, which it rotates in place: 10 bytes for a query element are kept instead of 6.
    Only with as many heads for keys as for queries; else each part is made contiguous by itself. Source:
    `CausalSelfAttention.forward` in nanotron `models/llama.py`.
    """

    name: ClassVar[str] = "merge_heads"

    def requires(self, graph: Graph) -> None:
        """Heads of a rank lie side by side."""
        require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that hold attention."""
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        return rewritten(graph, _rewrite, resave=True)


@dataclass
class _Parts:
    """A region under reconstruction, and what attention reads now: old value to new one, attention by attention."""

    region: Region
    values: list[Value] = field(default_factory=list)
    now: dict[int, dict[int, int]] = field(default_factory=dict)

    def value(self, like: int, kind: TensorType, storage: int | None = None) -> int:
        ident = self.region.fresh_id + len(self.values)
        made = replace(self.region.by_id[like], id=ident, type=kind, storage=ident if storage is None else storage)
        self.values.append(replace(made, saved=False))
        return ident


def _rewrite(region: Region) -> Region:
    if not any(_is_merged(region, n) for n in region.nodes):
        return region
    parts = _Parts(region)
    nodes = tuple(made for n in region.nodes for made in _nodes(parts, n))
    return replace(region, values=(*region.values, *parts.values), nodes=nodes)


def _is_merged(region: Region, node: Node) -> bool:
    if not has(node, Trait.ATTENDS) or node.phase is not Phase.FORWARD:
        return False
    dims = [region.by_id[i].type.dims[:_HEAD] for i in node.inputs[:_HEAD]]
    return dims[0] == dims[1] == dims[2]


def _nodes(parts: _Parts, node: Node) -> Iterator[Node]:
    if _is_merged(parts.region, node):
        yield from _merged(parts, node)
    now = parts.now.get(node.key if node.forward is None else node.forward, {})
    yield replace(node, inputs=tuple(now.get(i, i) for i in node.inputs)) if now else node


def _merged(parts: _Parts, node: Node) -> Iterator[Node]:
    q, k, v = node.inputs[:3]
    now = parts.now[node.key] = {}
    if not _is_part(parts.region, q):
        yield from _queries(parts, node, now)
    for i in (k, v):
        if _is_part(parts.region, i):
            now[i] = parts.value(i, parts.region.by_id[i].type)
            yield _node(node, "copy", (i,), now[i])


def _queries(parts: _Parts, node: Node, now: dict[int, int]) -> Iterator[Node]:
    """Put all three side by side, and view the queries there."""
    types = [parts.region.by_id[i].type for i in node.inputs[:3]]
    dims = (*types[0].dims[:_HEAD], total(t.dims[_HEAD] for t in types))
    whole = parts.value(node.inputs[0], replace(types[0], dims=dims))
    now[node.inputs[0]] = parts.value(node.inputs[0], types[0], whole)
    yield _node(node, "concat", node.inputs[:3], whole, ConcatAttrs(_HEAD))
    yield _node(node, "slice", (whole,), now[node.inputs[0]], SliceAttrs(_HEAD, 0))


def _is_part(region: Region, value: int) -> bool:
    """Whether a tensor is a view of a larger one."""
    v = region.by_id[value]
    return region.by_id[v.storage].type.num_bytes != v.type.num_bytes


def _node(like: Node, op: str, inputs: tuple[int, ...], output: int, attrs: Attrs = NO_ATTRS) -> Node:
    """A node beside an attention; a slice says where it starts, the others compute what their op says."""
    meaning = (
        Meaning((OperatorCall(op, (("start", attrs.start),)),), (Out(0),)) if isinstance(attrs, SliceAttrs) else None
    )
    return replace(like, op=op, inputs=inputs, outputs=(output,), attrs=attrs, meaning=meaning)
