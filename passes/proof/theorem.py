"""Which ops a theorem carries from two ranks to any number, and which it does not.

Lu et al. (TrainVerify, arXiv 2506.15961, appendix C): where every entry of a result is one function of entries at
affine places, summed by an associative reduction, parts that are equal at size 2 are equal at every size. Masks, orders
and places that data decide are no such functions. Entries of our truth tables were computed on 2 and 3 ranks: for the
ops below they are evidence, not proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ...ir.graph import Node, Region
from ...ir.ops.tensors.conv import ConvAttrs
from ...ir.ops.tensors.images import ChannelNormAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from .check import is_conversion

NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {
        "attention": "mask", "attention_bwd": "mask", "index_keys": "choice of keys", "topk": "order", "sort": "order",
        "embedding": "rows by data", "embedding_bwd": "rows by data", "gather": "places by data",
        "scatter": "places by data", "cross_entropy": "target by data", "cross_entropy_bwd": "target by data",
        "dispatch": "experts by data", "dispatch_bwd": "experts by data", "combine": "experts by data",
        "combine_bwd": "experts by data", "expert_bank": "experts by data", "expert_bank_bwd": "experts by data",
        "experts": "experts by data", "experts_bwd": "experts by data", "grouped_matmul": "groups by data",
        "quantise": "rounding", "unpriced": "unknown", "custom": "unknown",
    }
)  # fmt: skip


def reason(region: Region, node: Node) -> str | None:
    """Return why the theorem does not cover a node, None when it does."""
    if is_conversion(region, node):
        return None
    if isinstance(node.attrs, FillAttrs):
        return "random numbers" if node.attrs.kind == "random" else None
    if isinstance(node.attrs, ChannelNormAttrs) and node.attrs.kind == "batch" and not node.attrs.given:
        return "statistics of a replica's own samples"
    if isinstance(node.attrs, ElementwiseAttrs):
        return "random numbers" if "dropout" in node.attrs.fns else None
    if isinstance(node.attrs, ConvAttrs) and any(str(p) == "S(2)" for _, p in region.by_id[node.key].placements):
        return "neighbour's last positions, no message"
    return NOT_COVERED.get(node.op)


def uncovered(regions: Iterable[Region]) -> Mapping[tuple[str, str], int]:
    """Count the nodes that the theorem does not cover, by op and reason."""
    found = ((n.op, why) for r in regions for n in r.nodes if (why := reason(r, n)) is not None)
    return Counter(found)
