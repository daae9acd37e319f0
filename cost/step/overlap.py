"""Which products hide which tensor-parallel messages when both are taken apart and run piece by piece (async TP)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...backends.pricing.timing import Timing
from ...ir.graph import Graph, Node, Region
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.plan import PlanTable
from ...ir.records import dataclass

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """A message and the products next to it: those that read what it gathers, or that make what it scatters."""

    region: str
    message: int
    products: tuple[int, ...]


def pairs_of(graph: Graph) -> list[Pair]:
    """Return the messages over `tp` that products can hide; a product hides one message only, the first that can."""
    return [pair for region in graph.regions for pair in _pairs(region)]


def hidden_behind_products(timing: Timing, plans: PlanTable, pairs: Sequence[Pair]) -> Mapping[tuple[str, int], Array]:
    """Return the seconds of each message that its products hide, by region and key, plan by plan.

    Taken apart into t pieces, message and products overlap in all but one piece:
    exposed = max(0, t_message - t_products (1 - 1/t)).
    """
    wanted = {(p.region, k) for p in pairs for k in (p.message, *p.products)}
    time_s = dict(_times(timing, wanted))
    share = 1.0 - 1.0 / plans.tp
    return {
        (p.region, p.message): np.minimum(
            time_s[p.region, p.message], sum((time_s[p.region, k] for k in p.products), np.zeros(len(plans))) * share
        )
        for p in pairs
    }


def _times(timing: Timing, wanted: set[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], Array]]:
    for priced in timing.priced:
        for row, entry in enumerate(priced.group.entries):
            if (entry.region, entry.key) in wanted:
                yield (entry.region, entry.key), priced.seconds_of(row)


# Families of plans share most of their regions: each is looked at once.
@lru_cache(maxsize=512)
def _pairs(region: Region) -> tuple[Pair, ...]:
    found, taken = list[Pair](), set[int]()
    for node in region.nodes:
        over_tp = isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis == "tp"
        if not over_tp or not has(node, Trait.GATHERS, Trait.SCATTERS):
            continue
        near = _readers(region, node) if has(node, Trait.GATHERS) else _makers(region, node)
        products = tuple(dict.fromkeys(n.key for n in near if n.phase is node.phase and n.key not in taken))
        taken.update(products)
        if products:
            found.append(Pair(region.name, node.key, products))
    return tuple(found)


def _readers(region: Region, node: Node) -> Iterator[Node]:
    """Products that read a value, also through views of it."""
    for user in region.users.get(node.key, ()):
        if has(user, Trait.PRODUCT):
            yield user
        elif has(user, OpClass.FREE):
            yield from _readers(region, user)


def _makers(region: Region, node: Node) -> Iterator[Node]:
    """Products whose sum a value is, also through views and additions."""
    for source in (region.producer[i] for i in node.inputs if i in region.producer):
        if has(source, Trait.PRODUCT):
            yield source
        elif has(source, Trait.POINTWISE, OpClass.FREE):
            yield from _makers(region, source)


__all__ = ["Pair", "hidden_behind_products", "pairs_of"]
