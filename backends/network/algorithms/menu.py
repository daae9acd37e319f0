"""Which algorithms a collective may be done by, and which of them a level lets it use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..topology.level import SWITCHED, NetworkLevel
from . import chunks, exchange, flat, levelwise
from .algorithm import BEST, Algorithm, Collective, Holder
from .levelwise import IN_NETWORK, IN_NETWORK_TREE

_ALL = sorted((one for file in (flat, levelwise, chunks, exchange) for one in file.ALGORITHMS), key=lambda a: a.holder)
_KINDS = dict.fromkeys(kind for one in _ALL for kind in one.prices)
ALGORITHMS: Mapping[Collective, Mapping[str, Algorithm]] = MappingProxyType(
    {kind: {one.name: one for one in _ALL if kind in one.prices} for kind in _KINDS}
)
_TREES = frozenset(("double_tree", "hierarchical_tree"))
# Algorithms in which switches reduce and copy.
IN_NETWORKS = frozenset(one.name for one in _ALL if one.holder is Holder.SWITCH)


def algorithm_names() -> tuple[str, ...]:
    """Name all algorithms, for `algorithm` of a level.

    >>> "ring" in algorithm_names()
    True
    """
    return tuple(sorted({name for table in ALGORITHMS.values() for name in table}))


def allows(level: NetworkLevel, kind: Collective, name: str, first: NetworkLevel) -> bool:
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
    return ALGORITHMS[kind][name].holder is not Holder.PAPER


def _in_nccl(kind: Collective, name: str, innermost: bool) -> bool:
    """Behind one switch its trees are chains, no better than a ring; its all-to-all posts all messages at once.

    Switches reduce and gather for it (NVLS) but do not broadcast (`src/graph/tuning.cc`: a broadcast is a ring).
    """
    if name in _TREES:
        return not innermost
    if name in IN_NETWORKS:
        return kind != "broadcast"
    return ALGORITHMS[kind][name].holder is Holder.LIBRARY or (kind, name) == ("all_to_all", "direct")
