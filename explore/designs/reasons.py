"""Why a design cannot be built, as a number and in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...backends.technology.fits import Reason
from ...cost.silicon.dies.limits import Obstacle

# An obstacle of packages is told apart from a reason of the engine.
NOT_PACKAGED = 100
_PACKAGES: Mapping[Obstacle, str] = MappingProxyType(
    {
        Obstacle.VALUE: "a number that must be above zero",
        Obstacle.FIELD: "die beyond the field of lithography",
        Obstacle.WAFER: "die beyond the wafer",
        Obstacle.SHORELINE: "edge of a die too short for its interface",
        Obstacle.EDGES: "neighbours on more than four edges",
        Obstacle.CARRIER: "substrate too small for what is on it",
        Obstacle.WIRES: "interposer or fan-out beyond the largest",
        Obstacle.SUBSTRATE: "organic substrate beyond the largest",
        Obstacle.FINE_WIRES: "memory or interface with finer wires than an organic substrate has",
    }
)
_ENGINE: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.BUDGET: "an area or a power of nothing",
        Reason.DIES: "part of a die",
        Reason.SHARES: "shares above the whole",
        Reason.JOIN: "an odd number of dies in a mesh",
        Reason.D2D_BANDWIDTH: "no bandwidth between dies",
        Reason.D2D_REACH: "dies beyond the reach of their interface",
        Reason.D2D_SHORELINE: "edge of a die too short for its interface",
        Reason.D2D_AREA: "interface larger than its die",
        Reason.D2D_POWER: "interface takes all power",
        Reason.MULTIPROCESSOR: "no room for a multiprocessor",
        Reason.CACHE: "no room for a bank of cache",
        Reason.CACHE_POWER: "no power for the cache",
        Reason.STACK: "no room for a stack of memory beside the dies",
        Reason.CONTROLLER: "no room for a memory controller",
        Reason.STACKS: "no room for so many stacks",
        Reason.RANKS: "stacks that dies cannot share evenly",
        Reason.MEMORY_WIRES: "no edge for the wires of memory",
        Reason.MEMORY_POWER: "no power for the memory",
        Reason.LANE: "no room for a lane",
        Reason.LANE_WIRES: "no edge for the wires of lanes",
        Reason.COOLING: "hotter than its cooling takes",
    }
)


def reason_text(code: float) -> str:
    """Say why a design cannot be built.

    >>> reason_text(102)
    'die beyond the field of lithography'
    """
    if code > NOT_PACKAGED:
        return _PACKAGES[Obstacle(int(code) - NOT_PACKAGED)]
    return _ENGINE[Reason(int(code))]
