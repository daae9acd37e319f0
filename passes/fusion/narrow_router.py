"""Routers multiply in the type of their operands and give fp32: no copies of tokens and weights in fp32."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...ir.graph import Graph, Region
from ...ir.ops import Trait, has
from ...ir.records import dataclass
from ..base import Pass, PassResult, rewritten
from ..routers import routers


@dataclass(frozen=True, slots=True)
class NarrowRouter(Pass):
    """Let the product of a router read what its code casts to fp32 first.

    Serving engines keep the weight in the model's type and sum in fp32 inside of the product: `dsv3_router_gemm` of
    SGLang and vLLM, `router_gemm` of TensorRT-LLM.
    """

    name: ClassVar[str] = "narrow_router"

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that route."""
        return rewritten(graph, _rewrite)


def _rewrite(region: Region) -> Region:
    cast = {n.key: n.inputs[0] for n in region.nodes if has(n, Trait.CASTS)}
    products = routers(region)
    if not any(i in cast for n in region.nodes if n.key in products for i in n.inputs):
        return region
    nodes = [
        replace(n, inputs=tuple(cast.get(i, i) for i in n.inputs)) if n.key in products else n for n in region.nodes
    ]
    read = {i for n in nodes for i in n.inputs} | {p.value for p in region.outputs}
    gone = {key for key in cast if key not in read}
    values = tuple(v for v in region.values if v.id not in gone)
    return replace(region, values=values, nodes=tuple(n for n in nodes if n.key not in gone))
