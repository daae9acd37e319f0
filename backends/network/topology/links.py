"""What a collective meets at one part of the network: seconds of a step, seconds of some bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....ir.records import dataclass
from ...kernels.collective import IN_SWITCHES, CollectiveConstants, RankLink
from .lanes import PLAIN, Pattern, lane
from .layout import Array, LevelShare


@dataclass(frozen=True, slots=True)
class LevelTerm:
    """What one network level adds to the time of an algorithm."""

    level: str
    latency_s: Array | float
    bandwidth_s: Array | float


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """A part of the network as one kind of collective uses it.

    Attributes:
        share: what the part sees of the group.
        kind: the kind of collective.
        constants: what the library makes of the part; None for plain latency and bandwidth.
        is_spanned: whether the group has several members in this part.
        is_top: whether this is the outermost part that the group spans.
        plain: the wires of the part to all that talk over it as behind a switch.
    """

    share: LevelShare
    kind: str
    constants: CollectiveConstants | None
    is_spanned: NDArray[np.bool_]
    is_top: NDArray[np.bool_]
    plain: RankLink

    @classmethod
    def of(cls, share: LevelShare, kind: str, constants: CollectiveConstants | None) -> NetworkLink:
        """Look at a part through the eyes of a collective."""
        rate = share.part.bytes_per_s * share.level.efficiency
        spanned = share.fanout > 1
        top = spanned & (share.outside <= 1)
        return cls(share, kind, constants, spanned, top, _wire(rate, share.fanout, kind, constants))

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

    def step_s(self, pattern: Pattern) -> Array | float:
        """Return the time of one step for an empty message: alpha + (hops - 1) alpha_h."""
        level, found = self.share.level, lane(pattern, self.share)
        first = (self.constants.step_s if self.constants else 0.0) + level.latency_s
        return first if found is PLAIN else first + (found.hops - 1) * level.further_hop_s

    def wire_s(self, pattern: Pattern, num_bytes: Array) -> Array:
        """Return the time that some bytes of each rank take; without end where the pattern has no way.

        `num_bytes` over bandwidth x efficiency x the part of it that the pattern has; under a protocol as its
        `RankLink` says.
        """
        found = lane(pattern, self.share)
        if found is PLAIN:
            return self.plain.seconds(num_bytes)
        rate = self.share.part.bytes_per_s * self.share.level.efficiency * found.share
        blocked = found.share <= 0
        wire = _wire(np.where(blocked, 1.0, rate), self.fanout, self.kind, self.constants)
        return np.where(blocked & (num_bytes > 0), np.inf, wire.seconds(num_bytes))

    def switched(self, passes: int, num_bytes: Array) -> LevelTerm:
        """Return the time through switches that reduce and copy: passes x alpha_sw + O_r, then V/(u_r B).

        `alpha_sw` is the level's reduction latency, O_r and u_r are the library's; without one only the switches count.
        """
        level, constants = self.share.level, self.constants
        assert level.reduction_latency_s is not None
        once = passes * level.reduction_latency_s + (constants.switching_s if constants else 0.0)
        rate = self.share.part.bytes_per_s * level.efficiency
        wire = self.plain if constants is None else RankLink.under(constants, IN_SWITCHES, rate, self.fanout)
        return LevelTerm(level.name, np.where(self.is_spanned, once, 0.0), wire.seconds(num_bytes))

    def term(self, steps: Array, num_bytes: Array, pattern: Pattern) -> LevelTerm:
        """Return the time of some steps of a pattern, and of the bytes of all of them."""
        return LevelTerm(self.share.level.name, steps * self.step_s(pattern), self.wire_s(pattern, num_bytes))


def _wire(rate: Array | float, fanout: Array, kind: str, constants: CollectiveConstants | None) -> RankLink:
    return RankLink(rate) if constants is None else RankLink.under(constants, kind, rate, fanout)


Links: TypeAlias = Sequence[NetworkLink]
Terms: TypeAlias = tuple[LevelTerm, ...]
Price: TypeAlias = Callable[[Array, Links], Terms]


def levels_of(links: Links) -> list[list[NetworkLink]]:
    """Return the parts of each level together, innermost first."""
    found: list[list[NetworkLink]] = []
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
    wires = [np.where(x.is_spanned, x.wire_s(pattern, volume / x.inside), 0.0) for x in links]
    narrowest = np.array(wires).argmax(axis=0)
    return tuple(
        LevelTerm(x.share.level.name, hop * x.step_s(pattern), np.where(narrowest == i, wire, 0.0))
        for i, (x, hop, wire) in enumerate(zip(links, hops, wires, strict=True))
    )
