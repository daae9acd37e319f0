"""Which algorithms a collective may be done by, and which of them a level lets it use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from ..topology.lanes import Pattern
from ..topology.level import SWITCHED, NetworkLevel
from ..topology.links import Price
from . import chunks, exchange, flat, levelwise

Collective: TypeAlias = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "ring_gather", "ring_scatter"
]
# A level's `algorithm` that is no algorithm: the fastest of all.
BEST = "best"
IN_NETWORK = "in_network"
IN_NETWORK_TREE = "in_network_tree"

_ONE_WAY: Mapping[str, Price] = {
    "ring": flat.ring(1),
    "hierarchical_ring": levelwise.scattered("ring", 1),
    "two_way_ring": flat.ring(1, Pattern.BOTH),
    "hierarchical_two_way_ring": levelwise.scattered("both", 1),
    "halving_doubling": levelwise.scattered("halving", 1),
    "direct": levelwise.scattered("direct", 1),
    "concurrent_dimensions": chunks.rotated(1, "both"),
    "pipelined_hierarchical": chunks.chunked(levelwise.scattered("ring", 1)),
    IN_NETWORK: levelwise.in_network(1, whole=False),
}
ALGORITHMS: Mapping[str, Mapping[str, Price]] = MappingProxyType(
    {
        "all_reduce": {
            "ring": flat.ring(2),
            "double_tree": flat.double_tree,
            "hierarchical_ring": levelwise.scattered("ring", 2),
            "hierarchical_tree": levelwise.hierarchical_tree,
            "two_way_ring": flat.ring(2, Pattern.BOTH),
            "hierarchical_two_way_ring": levelwise.scattered("both", 2),
            "halving_doubling": levelwise.scattered("halving", 2),
            "recursive_doubling": levelwise.recursive_doubling,
            "direct": levelwise.scattered("direct", 2),
            "concurrent_dimensions": chunks.rotated(2, "both"),
            "pipelined_hierarchical": chunks.chunked(levelwise.scattered("ring", 2)),
            IN_NETWORK: levelwise.in_network(2, whole=True),
            IN_NETWORK_TREE: levelwise.in_network_tree,
        },
        "all_gather": {**_ONE_WAY, "bruck": levelwise.scattered("bruck", 1)},
        "reduce_scatter": _ONE_WAY,
        "all_to_all": {
            "pairwise": exchange.pairwise,
            "staged": exchange.staged,
            "direct": exchange.direct,
            "bruck": exchange.bruck,
        },
        "broadcast": {
            "chain": flat.chain,
            "binomial_tree": levelwise.binomial_tree,
            "scatter_gather": flat.scatter_gather,
            IN_NETWORK: levelwise.in_network(1, whole=True),
        },
        "send": {"direct": flat.send},
        "ring_gather": {"neighbours": flat.neighbours},
        "ring_scatter": {"neighbours": flat.neighbours},
    }
)
# What collective libraries have where a switch joins all; on other topologies the fastest of all is taken.
_LIBRARY = frozenset(
    (
        "ring", "hierarchical_ring", "double_tree", "hierarchical_tree", "pairwise", "staged", "chain", "binomial_tree",
        "neighbours",
    )
)  # fmt: skip
_TREES = frozenset(("double_tree", "hierarchical_tree"))
# Algorithms in which switches reduce and copy.
IN_NETWORKS = frozenset((IN_NETWORK, IN_NETWORK_TREE))


def algorithm_names() -> tuple[str, ...]:
    """Name all algorithms, for `algorithm` of a level.

    >>> "ring" in algorithm_names()
    True
    """
    return tuple(sorted({name for table in ALGORITHMS.values() for name in table}))


def allows(level: NetworkLevel, kind: str, name: str, first: NetworkLevel) -> bool:
    """Whether a collective whose outermost level this is may use an algorithm; `first` is the innermost of the system.

    The level's own `algorithm`, for the collectives that know it; else what libraries have on its topology. Switches
    reduce on the outermost level, or inside of the innermost one with a tree above it.
    """
    if name == IN_NETWORK and level.reduction_latency_s is None:
        return False
    if name == IN_NETWORK_TREE and (level is first or first.reduction_latency_s is None):
        return False
    if level.algorithm in ALGORITHMS[kind]:
        return name == level.algorithm
    if level.algorithm == BEST or level.topology not in SWITCHED or kind == "send":
        return True
    if level.protocol:
        return _in_nccl(kind, name, level is first)
    return name in _LIBRARY or name in IN_NETWORKS


def _in_nccl(kind: str, name: str, innermost: bool) -> bool:
    """Behind one switch its trees are chains, no better than a ring; its all-to-all posts all messages at once.

    Switches reduce and gather for it (NVLS) but do not broadcast (`src/graph/tuning.cc`: a broadcast is a ring).
    """
    if name in _TREES:
        return not innermost
    if name in IN_NETWORKS:
        return kind != "broadcast"
    return name in _LIBRARY or (kind, name) == ("all_to_all", "direct")
