"""Queries, keys and values as one tensor that attention reads in part, as code with one projection for all has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import NO_ATTRS, Node, Phase, Region, Workload
from ...ir.meaning import Meaning, OperatorCall, Out
from ...ir.ops import Trait, has
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import total
from ..base import RegionPass

_HEAD = 3  # the last dim of queries, keys and values


@dataclass(frozen=True, slots=True)
class MergeHeads(RegionPass[Node]):
    """Let attention read the queries as a view of all three, and keys and values from tensors of their own.

    nanotron has one projection. It views the queries in its result, whose storage then stays whole, and copies keys
    and values into another tensor, which it rotates in place: 10 bytes for a query element are kept instead of 6.
    Only with as many heads for keys as for queries; else each part is made contiguous by itself. Source:
    `CausalSelfAttention.forward` in nanotron `models/llama.py`.
    """

    name: ClassVar[str] = "merge_heads"
    sharded: ClassVar[bool | None] = True  # heads of a rank lie side by side
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)
    resaves: ClassVar[bool] = True

    def matches(self, region: Region) -> Iterable[Node]:
        """Yield attention with as many heads for keys as for queries."""
        for node in region.nodes:
            dims = [t.dims[:_HEAD] for t in region.types(node.inputs[:_HEAD])]
            if has(node, Trait.ATTENDS) and node.phase is Phase.FORWARD and dims[0] == dims[1] == dims[2]:
                yield node

    def rewrite(self, region: RegionRewriter, match: Node) -> None:
        """Let attention and its backward read a view of all three, and copies of parts of larger tensors."""
        q, *others = match.inputs[:3]
        now: dict[int, int] = {}
        if not _is_part(region.region, q):
            types = [region.values[i].type for i in match.inputs[:3]]
            like = replace(region.values[q], saved=False)
            dims = (*types[0].dims[:_HEAD], total(t.dims[_HEAD] for t in types))
            whole = region.add(replace(like, type=replace(types[0], dims=dims)))
            now[q] = region.add(like, whole)
            joined = replace(
                match, op="concat", inputs=match.inputs[:3], outputs=(whole,), attrs=ConcatAttrs(_HEAD), meaning=None
            )
            view = replace(joined, op="slice", inputs=(whole,), outputs=(now[q],), attrs=SliceAttrs(_HEAD, 0))
            start = Meaning((OperatorCall("slice", (("start", 0),)),), (Out(0),))
            region.insert_before(match, joined, replace(view, meaning=start))
        for i in (i for i in others if _is_part(region.region, i)):
            now[i] = region.add(replace(region.values[i], saved=False))
            copy = replace(match, op="copy", inputs=(i,), outputs=(now[i],), attrs=NO_ATTRS, meaning=None)
            region.insert_before(match, copy)
        for node in region.region.nodes:
            if match.key in (node.key, node.forward):
                region.rewire(node, now)


def _is_part(region: Region, value: int) -> bool:
    """Whether a tensor is a view of a larger one."""
    v = region.by_id[value]
    return region.by_id[v.storage].type.num_bytes != v.type.num_bytes
