"""Which products hide which tensor-parallel messages when both are taken apart and run piece by piece (async TP)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...backends.pricing.timing import Timing
from ...ir.graph import Graph, Node, Phase, Region
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import TP
from ...ir.plan import PlanTable
from ...ir.records import dataclass

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """A message and the products next to it: those that read what it gathers, or that make what it scatters.

    `frozen` are those of the products of a backward scatter whose weights are not trained.
    """

    region: str
    message: int
    products: tuple[int, ...]
    frozen: tuple[int, ...] = ()


def pairs_of(graph: Graph) -> list[Pair]:
    """Return the messages over `tp` that products can hide; a product hides one message only, the first that can."""
    return [pair for region in graph.regions for pair in _pairs(region)]


def hidden_behind_products(
    timing: Timing, plans: PlanTable, pairs: Sequence[Pair], frozen: float = 1.0
) -> Mapping[tuple[str, int], Array]:
    """Return the seconds of each message that its products hide, by region and key, plan by plan.

    Taken apart into t pieces, message and products overlap in all but one piece:
    exposed = max(0, t_message - t_products (1 - 1/t)). Of the seconds of `frozen` products this share counts.
    """
    wanted = {(p.region, k) for p in pairs for k in (p.message, *p.products)}
    time_s = dict(_times(timing, wanted))
    share = 1.0 - 1.0 / plans.tp
    found = {}
    for p in pairs:
        products = sum(
            (time_s[p.region, k] * (frozen if k in p.frozen else 1.0) for k in p.products), np.zeros(len(plans))
        )
        found[p.region, p.message] = np.minimum(time_s[p.region, p.message], products * share)
    return found


def _times(timing: Timing, wanted: set[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], Array]]:
    for priced in timing.priced:
        for row, entry in enumerate(priced.group.entries):
            if (entry.region, entry.key) in wanted:
                yield (entry.region, entry.key), priced.seconds_of(row)


# Families of plans share most of their regions: each is looked at once.
@lru_cache(maxsize=512)
def _pairs(region: Region) -> tuple[Pair, ...]:
    found, taken = list[Pair](), set[int]()
    # A trained product has two in the backward phase, a frozen one only the gradient of what it reads.
    back = Counter(n.forward for n in region.nodes if n.phase is Phase.BACKWARD and has(n, Trait.PRODUCT))
    for node in region.nodes:
        over_tp = isinstance(node.attrs, CollectiveAttrs) and node.attrs.axes == (TP,)
        if not over_tp or not has(node, Trait.GATHERS, Trait.SCATTERS):
            continue
        near = _readers(region, node) if has(node, Trait.GATHERS) else _makers(region, node)
        ours = {n.key: n for n in near if n.phase is node.phase and n.key not in taken}
        taken.update(ours)
        if ours:
            is_back = node.phase is Phase.BACKWARD and has(node, Trait.SCATTERS)
            frozen = tuple(key for key, n in ours.items() if is_back and back[n.forward] == 1)
            found.append(Pair(region.name, node.key, tuple(ours), frozen))
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
