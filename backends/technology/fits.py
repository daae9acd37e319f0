"""Whether a budget has room for what it must have: a reason for each row of a table, words for people."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass
from ...ir.sizes.expr import Num


class Reason(IntEnum):
    """Why a budget makes no chip; the first that holds, in the order in which a chip is built."""

    FITS = 0
    BUDGET = 1
    DIES = 2
    SHARES = 3
    JOIN = 4
    D2D_BANDWIDTH = 5
    D2D_REACH = 6
    D2D_SHORELINE = 7
    D2D_AREA = 8
    D2D_POWER = 9
    MULTIPROCESSOR = 10
    CACHE = 11
    CACHE_POWER = 12
    STACK = 13
    CONTROLLER = 14
    STACKS = 15
    RANKS = 16
    MEMORY_WIRES = 17
    MEMORY_POWER = 18
    LANE = 19
    LANE_WIRES = 20
    COOLING = 21


_ROOM = "no room for {what}: {{given:.3g}} mm2 of its budget, and one takes {{needed:.3g}} mm2"
_POWER = "no power left to use the {what}: {{given:.3g}} W of its budget, at rest it takes {{needed:.3g}} W"
_WIRE = "no wire leaves the die: {given:.3g} mm of edge take {needed:.3g} a millimetre"
_TEXTS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.BUDGET: "a chip needs area and power: given {given:g} mm2 and {needed:g} W",
        Reason.DIES: "a chip needs a die, and no part of one: given {given:g}",
        Reason.SHARES: "the shares add up to {given:g}, more than there is",
        Reason.JOIN: "{given:g} dies make no mesh of two rows: their number must be even",
        Reason.D2D_BANDWIDTH: "{needed:g} dies that are devices of their own need a bandwidth between them",
        Reason.D2D_REACH: "dies that must be joined lie {needed:.3g} mm apart, and the interface reaches {given:g} mm",
        Reason.D2D_SHORELINE: "no shoreline for the D2D interface: it takes {needed:.4g} mm of {given:.4g} mm of edge",
        Reason.D2D_AREA: "the D2D interface takes {needed:.3g} mm2 of a die of {given:.3g} mm2: nothing is left",
        Reason.D2D_POWER: "the D2D interface takes {needed:.3g} W of {given:.3g} W a die: nothing is left",
        Reason.MULTIPROCESSOR: _ROOM.format(what="a multiprocessor"),
        Reason.CACHE: _ROOM.format(what="a bank of cache"),
        Reason.CACHE_POWER: _POWER.format(what="cache"),
        Reason.STACK: _ROOM.format(what="a stack of memory beside the die"),
        Reason.CONTROLLER: _ROOM.format(what="a controller of memory on the die"),
        Reason.STACKS: "no room for {needed:g} stacks of memory: at most {given:g} fit",
        Reason.RANKS: "{given:g} stacks of memory cannot be shared out evenly among {needed:g} dies",
        Reason.MEMORY_WIRES: _WIRE,
        Reason.MEMORY_POWER: _POWER.format(what="memory"),
        Reason.LANE: _ROOM.format(what="a lane"),
        Reason.LANE_WIRES: _WIRE,
        Reason.COOLING: "the dies get rid of {needed:.3g} W/mm2, and their cooling takes {given:.3g} W/mm2",
    }
)


def words(reason: int, given: float, needed: float) -> str:
    """Say why with the numbers.

    >>> words(Reason.LANE, 0.1, 0.327)
    'no room for a lane: 0.1 mm2 of its budget, and one takes 0.327 mm2'
    """
    return _TEXTS[Reason(reason)].format(given=given, needed=needed)


@dataclass(frozen=True, slots=True)
class Fit:
    """The first reason against each row, 0 for none, with what was given and what is needed."""

    reason: NDArray[np.int8]
    given: Num
    needed: Num

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Whether there is none."""
        return np.equal(self.reason, Reason.FITS)

    def then(self, *others: Fit) -> Fit:
        """Add further reasons where there is none so far."""
        found = self
        for other in others:
            if other.reason.any():
                found = _first(found, other)
        return found


def _first(one: Fit, other: Fit) -> Fit:
    so_far = one.holds
    return Fit(
        np.where(so_far, other.reason, one.reason).astype(np.int8),
        np.where(so_far, other.given, one.given),
        np.where(so_far, other.needed, one.needed),
    )


def check(holds: NDArray[np.bool_] | bool, reason: Reason, given: Num, needed: Num) -> Fit:
    """Return the reason where something does not hold."""
    return Fit(np.where(holds, np.int8(Reason.FITS), np.int8(reason)), given, needed)


FITS = check(True, Reason.FITS, 0.0, 0.0)
