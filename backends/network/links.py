"""What a collective meets at one part of the network: seconds of a step, seconds of some bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..kernels.collective import CollectiveConstants, wire_times
from .lanes import PLAIN, Pattern, lane
from .layout import Array, LevelShare


@dataclass(frozen=True, slots=True)
class LevelTerm:
    """What one network level adds to the time of an algorithm."""

    level: str
    latency_s: Array | float
    bandwidth_s: Array | float


@dataclass(frozen=True, slots=True)
class Link:
    """A part of the network as one kind of collective uses it.

    Attributes:
        share: what the part sees of the group.
        kind: the kind of collective.
        constants: what the library makes of the part; None for plain latency and bandwidth.
    """

    share: LevelShare
    kind: str
    constants: CollectiveConstants | None

    @property
    def fanout(self) -> Array:
        """Members that this part joins."""
        return self.share.fanout

    @property
    def inside(self) -> Array:
        """Members of the group below each of these."""
        return self.share.inside

    @property
    def depth(self) -> Array:
        """Steps that reach all members by doubling."""
        found: Array = np.ceil(np.log2(self.fanout))
        return found

    @property
    def is_top(self) -> NDArray[np.bool_]:
        """Whether this is the outermost part that the group spans."""
        return self.share.is_top

    def step_s(self, pattern: Pattern) -> Array:
        """Return the time of one step for an empty message: alpha + (hops - 1) alpha_h."""
        level = self.share.level
        own = self.constants.step_s if self.constants else 0.0
        return own + level.latency_s + (lane(pattern, self.share).hops - 1) * level.further_hop_s

    def wire_s(self, pattern: Pattern, num_bytes: Array) -> Array:
        """Return the time that some bytes of each rank take; without end where the pattern has no way.

        `num_bytes` over bandwidth x efficiency x the part of it that the pattern has; under a protocol as its
        `wire_times` says.
        """
        found = lane(pattern, self.share)
        rate = self.share.part.bytes_per_s * self.share.level.efficiency * found.share
        if found is PLAIN:
            return self._seconds(num_bytes, rate)
        blocked = found.share <= 0
        seconds = self._seconds(num_bytes, np.where(blocked, 1.0, rate))
        return np.where(blocked & (num_bytes > 0), np.inf, seconds)

    def _seconds(self, num_bytes: Array, rate: Array) -> Array:
        if self.constants is None:
            return num_bytes / rate
        return wire_times(num_bytes, rate, self.fanout, self.kind, self.constants)

    def term(self, steps: Array, num_bytes: Array, pattern: Pattern) -> LevelTerm:
        """Return the time of some steps of a pattern, and of the bytes of all of them."""
        return LevelTerm(self.share.level.name, steps * self.step_s(pattern), self.wire_s(pattern, num_bytes))


Links: TypeAlias = Sequence[Link]
Terms: TypeAlias = tuple[LevelTerm, ...]
Price: TypeAlias = Callable[[Array, Links], Terms]


def levels_of(links: Links) -> list[list[Link]]:
    """Return the parts of each level together, innermost first."""
    found: list[list[Link]] = []
    for link in links:
        if found and found[-1][0].share.level is link.share.level:
            found[-1].append(link)
        else:
            found.append([link])
    return found


def pipelined(hops: Sequence[Array], volume: Array, links: Links, pattern: Pattern) -> Terms:
    """Return the terms of what runs through all parts at the same time, so that only the narrowest one's wires count.

    A part moves 1/m of the volume over the links of each of the m ranks inside of its members.
    """
    wires = [np.where(x.fanout > 1, x.wire_s(pattern, volume / x.inside), 0.0) for x in links]
    narrowest = np.argmax(np.stack(wires), axis=0)
    return tuple(
        LevelTerm(x.share.level.name, hop * x.step_s(pattern), np.where(narrowest == i, wire, 0.0))
        for i, (x, hop, wire) in enumerate(zip(links, hops, wires, strict=True))
    )
