"""Collectives as a library runs them: what it makes of the links, and kernels of serving engines for small messages."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ...ir.records import dataclass
from .limits import ChipShare, ConstantRange, Overhead, Scope
from .terms import Array

# What goes from one rank to one other.
TO_ONE = frozenset(("send", "ring_gather", "ring_scatter"))
# The kind of what goes through switches that reduce and copy (NVLS), whatever the collective.
IN_SWITCHES = "in_switches"
# What moves the whole vector: no rank copies a share of its own.
_WHOLE = frozenset(("broadcast", IN_SWITCHES))


@dataclass(frozen=True, slots=True)
class CollectiveConstants:
    """Constants of collectives of one library over one kind of link.

    Attributes:
        overhead_s: O, launch and fixed work, once a collective.
        step_s: alpha, what a step adds to the latency of the link.
        issue_s: o, what each peer adds when messages to all are posted at once.
        fill_s: t_S, time to fill the pipeline that carries large messages at full rate.
        start: f, part of that rate without any filling: protocols of low latency.
        own: c, cost of the share that a rank keeps, in shares that it sends.
        all_reduce: u, part of the link's bandwidth that all-reduce reaches.
        gather: the same of all-gather, reduce-scatter and broadcast.
        all_to_all: the same of all-to-all.
        send: the same of a message from one rank to one other.
        reduced: u_r, part of the link's bandwidth that collectives through switches that reduce and copy reach.
        switching_s: O_r, what these add once a collective: all write to, and wait for, one buffer in the switches.
        channels: SMs that move the data.
    """

    overhead_s: Overhead
    step_s: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 2e-5)]
    issue_s: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 2e-6)]
    fill_s: Annotated[float, ConstantRange(Scope.CHIP, 0.0, 5e-4)]
    start: Annotated[float, ConstantRange(Scope.KERNEL, 0.05, 1.0)]
    own: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2.0)]
    all_reduce: ChipShare
    gather: ChipShare
    all_to_all: ChipShare
    send: ChipShare
    reduced: ChipShare
    switching_s: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 1e-4)]
    channels: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 512.0)]

    def share(self, kind: str) -> float:
        """Return the part of the bandwidth that a collective reaches, by the name of its kind."""
        return {
            "all_reduce": self.all_reduce,
            "all_to_all": self.all_to_all,
            "send": self.send,
            "reduced": self.reduced,
        }.get(share_of(kind), self.gather)


def share_of(kind: str) -> str:
    """Name the constant that is a collective's part of the bandwidth.

    >>> share_of("reduce_scatter"), share_of("ring_gather")
    ('gather', 'send')
    """
    if kind in TO_ONE:
        return "send"
    if kind == IN_SWITCHES:
        return "reduced"
    return kind if kind in ("all_reduce", "all_to_all") else "gather"


def constants_of(kind: str) -> tuple[str, ...]:
    """Name the constants that the time of a collective rests on, its overhead aside.

    >>> constants_of("send"), constants_of("broadcast"), constants_of("in_switches")
    (('step', 'send'), ('step', 'fill', 'start', 'gather'), ('switching', 'fill', 'start', 'reduced'))
    """
    if kind in TO_ONE:
        return ("step", "send")
    if kind == IN_SWITCHES:
        return ("switching", "fill", "start", "reduced")
    if kind == "broadcast":
        return ("step", "fill", "start", "gather")
    issue = ("issue",) if kind == "all_to_all" else ()
    return ("step", *issue, "fill", "start", "own", share_of(kind))


@dataclass(frozen=True, slots=True)
class CustomAllReduceConstants:
    """Constants of an all-reduce in one kernel, as serving engines have it for small messages.

    Attributes:
        overhead_s: O, launch and a barrier.
        peer: p, what each peer adds to it, as a part of O.
        one_shot: u1, part of the bandwidth when every rank reads all of every other.
        two_shot: u2, the same when each reduces its share, then reads those of the others.
        second: r, what the second of the two passes adds, as a multiple of O.
    """

    overhead_s: Overhead
    peer: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 1.0)]
    one_shot: Annotated[float, ConstantRange(Scope.KERNEL, 0.05, 1.5)]
    two_shot: Annotated[float, ConstantRange(Scope.KERNEL, 0.05, 1.5)]
    second: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 50.0)]


@dataclass(frozen=True, slots=True)
class RankLink:
    """What a rank's messages move over: a rate, the bytes that fill the pipeline to it, and those that do not wait."""

    rate: Array | float
    filling: Array | None = None
    early: Array | float = 0.0

    @classmethod
    def under(cls, constants: CollectiveConstants, kind: str, bytes_per_s: Array | float, members: Array) -> RankLink:
        """Return the wire that a library makes of a link, for a kind of collective among some members."""
        rate = bytes_per_s * constants.share(kind)
        if kind in TO_ONE:
            return cls(rate)
        own = 0.0 if kind in _WHOLE else constants.own
        kept = rate / (1 + own / np.maximum(members - 1, 1.0))
        filling = np.asarray(constants.fill_s * kept)
        return cls(kept) if constants.fill_s == 0 else cls(kept, filling, constants.start * filling)

    def seconds(self, volume: Array) -> Array:
        """Return the seconds of V bytes of a rank: V/B x (V + t_S B) / (V + f t_S B).

        B = bandwidth x u / (1 + c/(n - 1)). Small messages move at f B, without filling a pipeline; for large ones
        (1 - f) t_S is added to V/B. The time rises with V and falls with B. What goes to one other rank keeps no share
        and moves at the full rate from the first byte: V/B. A broadcast and what switches reduce are moved whole: no
        share is kept, c = 0.
        """
        if self.filling is None:
            return np.asarray(volume / self.rate)
        times: Array = volume / self.rate * (volume + self.filling) / (volume + self.early)
        return times
