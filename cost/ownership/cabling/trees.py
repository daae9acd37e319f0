"""Ends of links into a tree of switches: as many tiers as it needs, with the switches and links of each.

A tree of L tiers of switches of r ports, at full speed, has up to 2 (r/2)^L ends; of n ends, two tiers take 3 n/r
switches and three 5 n/r: half of the ports of a switch go down and half go up, all ports of the topmost tier go down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....ir.records import dataclass
from ....ir.sizes.expr import Num

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tree:
    """Switches and links, tier by tier from the ends up; the links of a tier come from below."""

    switches: tuple[Num, ...]
    links: tuple[Num, ...]

    @property
    def num_switches(self) -> Num:
        """Switches of all tiers."""
        return sum(self.switches, start=0.0)

    def times(self, count: Num) -> Tree:
        """Return so many of it."""
        return Tree(tuple(s * count for s in self.switches), tuple(n * count for n in self.links))


def tree(ends: Num, radix: int, oversubscription: Num = 1.0, above: Num = 1.0, rails: Num = 1.0) -> Tree:
    """Count a tree of switches over ends of links, each at the rate of a port.

    Args:
        ends: of links to whatever is joined.
        radix: ports of a switch, 4 or more.
        oversubscription: ports down over ports up of the first tier.
        above: part of the ports of the topmost tier that go down; less than all where another level sits on it.
        rails: groups of ends that share no switch of the first tier.

    >>> tree(1024, 64).num_switches, tree(32768, 64).num_switches, tree(64, 64).num_switches
    (48.0, 2560.0, 1.0)
    """
    ends = np.asarray(ends, dtype=np.float64)
    full = np.maximum(np.floor(radix * np.asarray(above)), 1.0)
    down = np.clip(np.floor(radix * oversubscription / (1.0 + oversubscription)), 1, radix - 1)
    alone = (ends <= full) & (ends > 0)
    leaves = np.where(alone, 0.0, rails * np.ceil(ends / rails / down))
    upper = _upper(np.ceil(ends / oversubscription) * (leaves > 0), leaves, radix, full)
    first = plain(np.where(alone, 1.0, leaves))
    return Tree((first, *map(plain, upper.switches)), (plain(ends), *map(plain, upper.links)))


def joined(ends: Num, groups: Num, radix: int, above: Num = 1.0) -> Tree:
    """Count the tiers over groups that have switches of their own, by ends of their uplinks in all.

    >>> joined(ends=512, groups=8, radix=64).switches  # eight pods of 64 uplinks each
    (8.0,)
    """
    full = np.maximum(np.floor(radix * np.asarray(above)), 1.0)
    ends, groups = np.asarray(ends, dtype=np.float64), np.asarray(groups, dtype=np.float64)
    found = _upper(np.where(groups > 1, ends, 0.0), np.where(groups > 1, groups, 0.0), radix, full)
    return Tree(tuple(map(plain, found.switches)), tuple(map(plain, found.links)))


def _upper(links: Array, units: Array, radix: int, full: Array) -> Tree:
    """Tiers above `units` that have so many links up: the topmost tier reaches all units by a port or more each."""
    half = radix // 2
    switches: list[Num] = []
    found: list[Num] = []
    reach = float(radix)
    while np.any(there := units > (reach / half if switches else 0.0)):
        top = units <= reach
        switches.append(np.where(there, np.ceil(links / np.where(top, full, half)), 0.0))
        found.append(np.where(there, links, 0.0))
        reach *= half
    return Tree(tuple(switches), tuple(found))


def plain(value: Num) -> Num:
    """Return an array that holds one number as a plain number, any other as it is."""
    return float(value) if np.ndim(value) == 0 else value
