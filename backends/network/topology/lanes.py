"""What a topology gives to a way of talking: how many hops a step takes, and which part of a rank's bandwidth it has.

All members talk at once, and so do all groups that lie side by side: where `step` groups lie between one another on
wires of their own, each has a part of these. Derived by counting the messages on the busiest wire; a graph has them
counted along its shortest paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ....ir.records import dataclass
from .layout import Array, LevelShare
from .parts import Shape
from .routes import loads


class Pattern(StrEnum):
    """Who talks to whom in one step."""

    RING = "ring"  # each to the next
    BOTH = "both"  # each to the next and to the one before, half of it either way
    SWAP = "swap"  # pairs at a distance of 1, 2, 4, ...; the widest counts
    PEERS = "peers"  # each to all others in its own place, one of every member
    PAIRS = "pairs"  # each to all others, whatever their place
    SEND = "send"  # each to the next over one path


@dataclass(frozen=True, slots=True)
class NetworkLane:
    """Hops of a step, and the part of a rank's bandwidth; 0 where there is no way at all."""

    hops: Array
    share: Array


# One number for all plans: what most networks are made of must cost no time.
PLAIN = NetworkLane(np.ones(()), np.ones(()))
# Messages that share paths with others; with neighbours there is a wire of one's own.
_CROSSING = frozenset((Pattern.SWAP, Pattern.PEERS, Pattern.PAIRS))
# On a graph, where all members are of one kind, as another one does.
_ALIKE: Mapping[Pattern, Pattern] = MappingProxyType({Pattern.PAIRS: Pattern.PEERS, Pattern.SEND: Pattern.RING})
Counts: TypeAlias = Callable[[Pattern, LevelShare], NetworkLane]


def lane(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """Return what a part of the network gives to a pattern.

    >>> from slipstick.backends.network.topology.layout import lay_out
    >>> from slipstick.backends.network.topology.level import NetworkLevel
    >>> (ring,) = lay_out(8, 1, [NetworkLevel("ici", 8, 100e9, 1e-6, "ring")])
    >>> float(lane(Pattern.PAIRS, ring).hops), float(lane(Pattern.PAIRS, ring).share)
    (4.0, 0.4375)
    """
    found = _SHAPES[share.part.shape](pattern, share)
    level = share.level
    if pattern not in _CROSSING or (isinstance(level.contention, float) and level.contention == 1.0):
        return found
    return NetworkLane(found.hops, np.asarray(found.share * level.contention))


def _switch(pattern: Pattern, share: LevelShare) -> NetworkLane:
    return PLAIN


def _rails(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """Ranks in the same place of their nodes are behind one switch; what crosses goes over the uplinks."""
    ones = np.ones_like(share.fanout)
    crosses = (pattern is Pattern.PAIRS) & (share.inside > 1)
    return NetworkLane(ones, np.where(crosses, 1 / share.level.oversubscription, 1.0))


def _separate_rails(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """Nothing joins the rails but the nodes themselves."""
    ones = np.ones_like(share.fanout)
    crosses = (pattern is Pattern.PAIRS) & (share.inside > 1)
    return NetworkLane(ones, np.where(crosses, 0.0, 1.0))


def _full(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """A wire to each other member: all of those of the group together, or only one of them.

    A ring runs as several over disjoint wires (Tillson 1980: n - 1 of them, but for 4 and 6 members).
    """
    n, wires = share.fanout, share.members - 1
    one = pattern in (Pattern.SWAP, Pattern.SEND)
    used = np.where(n > 1, 1.0 if one else n - 1, wires)
    return NetworkLane(np.ones_like(n), used / wires)


def _ring(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """Two wires a member, a way round where the group closes it; else a line."""
    n, step = share.fanout, share.step
    closed = _segment(n, step, closed=True, pattern=pattern)
    # All wires of one of two lead to the other.
    closed = NetworkLane(closed.hops, np.where(n == 2, 1 / step, closed.share))
    line = _line(pattern, share)
    full = n * step >= share.members
    return NetworkLane(np.where(full, closed.hops, line.hops), np.where(full, closed.share, line.share))


def _line(pattern: Pattern, share: LevelShare) -> NetworkLane:
    return _segment(share.fanout, share.step, closed=False, pattern=pattern)


def _segment(n: Array, step: Array, closed: bool, pattern: Pattern) -> NetworkLane:
    """A ring of n members, or a line, with `step` of their kind side by side; a member has two wires."""
    pair = n <= 2
    far = np.floor(n / 2) if closed else n - 1
    if pattern is Pattern.RING:
        # On a line the ring is folded: every wire is used once each way, and most steps pass over a neighbour.
        return NetworkLane(step if closed else np.where(pair, 1.0, 2.0) * step, 0.5 / step)
    if pattern is Pattern.BOTH:
        return NetworkLane(step if closed else np.where(pair, 1.0, 2.0) * step, (1.0 if closed else 0.5) / step)
    if pattern is Pattern.SEND:
        return NetworkLane(step, 0.5 / step)
    half = np.maximum(np.floor(n / 2), 1.0)
    if pattern is Pattern.SWAP:
        return NetworkLane(np.maximum(half, 1.0) * step, 0.5 / (half * step))
    # Sum of the distances to all others: n^2/4 on a ring; over the middle of a line goes twice that.
    distance = np.maximum(np.floor(n * n / 4), 1.0) * (1.0 if closed else 2.0)
    return NetworkLane(np.maximum(far, 1.0) * step, np.maximum(n - 1, 1.0) / (distance * step))


def _one_way_ring(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """One wire a member. Whatever a group sends goes once round, so N/n groups have each wire n/N of the time."""
    n, step, members = share.fanout, share.step, share.members
    once = np.minimum(n, members) / members
    far = members - step
    if pattern in (Pattern.RING, Pattern.BOTH, Pattern.SEND):
        return NetworkLane(np.maximum(step, members - (n - 1) * step), once)
    return NetworkLane(far, np.full_like(n, 2 / members) if pattern is not Pattern.SWAP else 1 / np.maximum(far, 1.0))


def _global(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """Groups of a dragonfly: two in turn are joined by few wires, so traffic goes by a third, twice over the wires.

    What goes to all groups alike takes the direct wires (Kim et al., ISCA 2008).
    """
    straight = pattern in (Pattern.PAIRS, Pattern.PEERS)
    ones = np.ones_like(share.fanout)
    return NetworkLane(3 * ones if straight else 5 * ones, ones if straight else 0.5 * ones)


def _graph(pattern: Pattern, share: LevelShare) -> NetworkLane:
    """Counted along the shortest paths, once for each distinct group."""
    pairs = np.stack([share.fanout.ravel(), share.step.ravel()])
    distinct, where = np.unique(pairs, axis=1, return_inverse=True)
    found = [loads(share.level.edges, int(n), int(s), _ALIKE.get(pattern, pattern).value) for n, s in distinct.T]
    hops = np.array([load.hops for load in found])[where.ravel()]
    each = np.array([load.seconds_per_byte for load in found])[where.ravel()]
    shape = share.fanout.shape
    rate = share.part.bytes_per_s
    part = np.where(each > 0, 1 / np.where(each > 0, each * rate, 1.0), 1.0)
    return NetworkLane(hops.reshape(shape), np.minimum(part, 1.0).reshape(shape))


_SHAPES: Mapping[Shape, Counts] = MappingProxyType(
    {
        "switch": _switch,
        "rails": _rails,
        "separate_rails": _separate_rails,
        "full": _full,
        "ring": _ring,
        "one_way_ring": _one_way_ring,
        "line": _line,
        "global": _global,
        "graph": _graph,
    }
)
