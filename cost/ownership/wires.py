"""What a message takes of its wires, in joules: those between dies of a package, and those of each network level.

    E = bytes sent (share_1 e_1 + share_2 e_2 + ...), share_l = inside_l - inside_(l-1)

m of the n ranks of a message lie in one group of a level. Of a ring (n > m) each rank sends to its neighbour, of m
ranks one to another group: 1 - 1/m is inside. An all-to-all sends as much to each of n - 1 peers, of which m - 1 are
inside.
Energies are those that a level says, of its kind of link in the price book, and of interfaces between dies in the
technology's data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.machine import LevelEquipment
from ...backends.machine.package import D2d, levels_of_dies
from ...backends.machine.system import System
from ...backends.network.topology.level import NetworkLevel
from ...backends.prices.ownership_schema import EnergySection
from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num

if TYPE_CHECKING:
    from ...backends.pricing.program import PricingGroup

Array = NDArray[np.float64]
_RING: Mapping[str, float] = {"all_reduce": 2.0}
_POINT_TO_POINT = frozenset(("send", "recv"))


@dataclass(frozen=True, slots=True)
class Link:
    """The wires of one network level.

    Attributes:
        level: its name.
        kind: of link, or of the interface between dies.
        j_per_byte: of a byte that goes over them, sender and receiver together.
        ranks: in one group of the level; infinite for no limit.
        path: of the number, where it is of the price book.
    """

    level: str
    kind: str
    j_per_byte: Num
    ranks: float
    path: str = ""


@dataclass(frozen=True, slots=True)
class Wires:
    """The wires that bytes of a message go by, from the inside out."""

    links: tuple[Link, ...]

    def only(self, level: str, j_per_byte: float) -> Wires:
        """Return the same wires where those of one level take so much, and all others nothing."""
        at = (j_per_byte if link.level == level else 0.0 for link in self.links)
        return Wires(tuple(replace(link, j_per_byte=each) for link, each in zip(self.links, at, strict=True)))

    def j_per_byte(self, kind: str, sizes: Array, strides: Array) -> Array:
        """Return joules of a byte that each rank of a group sends; factors of the group lie along the first axis."""
        ranks = np.maximum(np.prod(sizes, axis=0), 1.0)
        found, below = np.zeros_like(ranks), np.zeros_like(ranks)
        for link in self.links:
            reach = np.minimum(np.maximum(np.floor(link.ranks / strides), 1.0), np.maximum(sizes, 1.0))
            near = np.ones_like(ranks) * np.prod(reach, axis=0)
            ring = np.where(ranks > near, 1.0 - 1.0 / near, 1.0)
            peers = (near - 1.0) / np.maximum(ranks - 1.0, 1.0)
            inside = np.where(near > 1.0, peers if kind == "all_to_all" else ring, 0.0)
            inside = np.ones_like(ranks) if link is self.links[-1] else inside
            found, below = found + (inside - below) * link.j_per_byte, inside
        return np.asarray(found)


def wires_of(system: System, energy: EnergySection) -> Wires:
    """Return the wires of a system; UnknownNameError for a link of which nobody says what it takes."""
    package = system.package
    dies = {} if package is None else {d2d.level: d2d for d2d, *_ in levels_of_dies(package.assembly, (), "")}
    return Wires(tuple(_link(level, dies.get(level.name), energy) for level in system.levels))


def _link(level: NetworkLevel, d2d: D2d | None, energy: EnergySection) -> Link:
    built = level.equipment or LevelEquipment()
    ranks = math.inf if level.size is None else float(level.size)
    own = built.energy_j_per_byte if d2d is None else d2d.energy_j_per_byte
    kind = built.link_kind if d2d is None else d2d.kind
    if own is not None:
        return Link(level.name, kind, own, ranks, f"network.{level.name}.equipment.energy" if d2d is None else "")
    if d2d is not None:
        # Most packages have no such interface, and need no data of circuits.
        from ...backends.technology.data import load_technology

        return Link(level.name, kind, load_technology().d2d(kind).energy_j_per_byte, ranks)
    if kind not in energy.links:
        raise UnknownNameError.of("link of prices.energy.links", kind, energy.links)
    return Link(level.name, kind, energy.links[kind].si, ranks, f"prices.energy.links.{kind}")


def sent_joules(group: PricingGroup, sizes: Array, wires: Wires) -> Array:
    """Return the joules of each message of a group at each point, of one rank.

    An all-reduce sends 2 (n-1)/n S in a ring of n, a gather (n-1)/n S; a send all of it.
    """
    count = len(group.entries)
    messages, stretches, strides = sizes[:count], sizes[count::2], sizes[count + 1 :: 2]
    copies = float(group.axis.pieces or 1)
    ranks = np.maximum(np.prod(stretches, axis=0) / copies, 1.0)
    kind = group.collective
    share = np.ones_like(ranks) if kind in _POINT_TO_POINT else _RING.get(kind, 1.0) * (ranks - 1.0) / ranks
    held = np.concatenate([stretches[:1] / copies, stretches[1:]])
    return np.asarray(messages * share * wires.j_per_byte(kind, held, strides))
