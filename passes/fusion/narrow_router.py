"""Routers multiply in the type of their operands and give fp32: no copies of tokens and weights in fp32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import Node, Region
from ...ir.ops import Trait, has
from ...ir.records import dataclass
from ..base import RegionPass
from ..routers import routers


@dataclass(frozen=True, slots=True)
class NarrowRouter(RegionPass[tuple[Node, Node]]):
    """Let the product of a router read what its code casts to fp32 first.

    Serving engines keep the weight in the model's type and sum in fp32 inside of the product: `dsv3_router_gemm` of
    SGLang and vLLM, `router_gemm` of TensorRT-LLM.
    """

    name: ClassVar[str] = "narrow_router"

    def matches(self, region: Region) -> Iterable[tuple[Node, Node]]:
        """Yield the product of a router and a cast that it reads."""
        keys = routers(region)
        products = [n for n in region.nodes if n.key in keys]
        casts = [n for n in region.nodes if has(n, Trait.CASTS)]
        return ((product, cast) for cast in casts for product in products if cast.key in product.inputs)

    def rewrite(self, region: RegionRewriter, match: tuple[Node, Node]) -> None:
        """Read what was cast; the cast goes with its last reader."""
        product, cast = match
        region.rewire(product, {cast.key: cast.inputs[0]})
        if not region.users(cast.key) and all(p.value != cast.key for p in region.outputs):
            region.erase(cast)
