"""What a message takes of its wires, in joules: those between dies of a package, and those that leave it.

    E = bytes sent (inside e_D2D + (1 - inside) e_network)

Where each die is a rank, m of the n ranks of a message share a package. Of a ring (n > m) each rank sends to its
neighbour, of m ranks one to another package: 1 - 1/m is inside. An all-to-all sends as much to each of n - 1 peers, of
which m - 1 are inside. Energies of interfaces are those of the technology's data, by kind, unless a die says its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.package import levels_of_dies
from ...backends.machine.system import System
from ...backends.prices.ownership_schema import EnergySection
from ...backends.pricing.program import PricingGroup
from ...ir.records import dataclass
from ...ir.sizes.expr import Num

Array = NDArray[np.float64]
_RING: Mapping[str, float] = {"all_reduce": 2.0}
_POINT_TO_POINT = frozenset(("send", "recv"))


@dataclass(frozen=True, slots=True)
class Wires:
    """The wires that bytes of a message go by.

    Attributes:
        network_j_per_byte: of a byte that leaves its package.
        d2d_j_per_byte: of a byte between dies of a package, sender and receiver together.
        ranks: dies of a package that are ranks of their own; 1 where none is.
    """

    network_j_per_byte: float
    d2d_j_per_byte: Num = 0.0
    ranks: int = 1

    def j_per_byte(self, kind: str, sizes: Array, strides: Array) -> Array:
        """Return joules of a byte that each rank of a group sends; factors of the group lie along the first axis."""
        ranks = np.maximum(np.prod(sizes, axis=0), 1.0)
        if self.ranks == 1:
            return np.full_like(ranks, self.network_j_per_byte)
        near = np.prod(np.minimum(np.maximum(np.floor(self.ranks / strides), 1.0), np.maximum(sizes, 1.0)), axis=0)
        ring = np.where(ranks > near, 1.0 - 1.0 / near, 1.0)
        peers = (near - 1.0) / np.maximum(ranks - 1.0, 1.0)
        inside = np.where(near > 1.0, peers if kind == "all_to_all" else ring, 0.0)
        return np.asarray(inside * self.d2d_j_per_byte + (1.0 - inside) * self.network_j_per_byte)


def wires_of(system: System, energy: EnergySection) -> Wires:
    """Return the wires of a system; UnknownNameError for an interface of which nobody says what it takes."""
    package = system.package
    found = [] if package is None else [d2d for d2d, *_ in levels_of_dies(package.assembly, (), "")]
    if package is None or not found or found[0].level != system.levels[0].name:
        return Wires(energy.network.si)
    own = found[0].energy_j_per_byte
    if own is not None:
        return Wires(energy.network.si, own, package.num_ranks)
    # Most packages have no such interface, and need no data of circuits.
    from ...backends.technology.data import load_technology

    return Wires(energy.network.si, load_technology().d2d(found[0].kind).energy_j_per_byte, package.num_ranks)


def sent_joules(group: PricingGroup, sizes: Array, wires: Wires) -> Array:
    """Return the joules of each message of a group at each point, of one rank.

    An all-reduce sends 2 (n-1)/n S in a ring of n, a gather (n-1)/n S; a send all of it.
    """
    count = len(group.entries)
    messages, stretches, strides = sizes[:count], sizes[count::2], sizes[count + 1 :: 2]
    copies = float(group.axis.partition("/")[2] or 1)
    ranks = np.maximum(np.prod(stretches, axis=0) / copies, 1.0)
    kind = group.collective
    share = np.ones_like(ranks) if kind in _POINT_TO_POINT else _RING.get(kind, 1.0) * (ranks - 1.0) / ranks
    held = np.concatenate([stretches[:1] / copies, stretches[1:]])
    return np.asarray(messages * share * wires.j_per_byte(kind, held, strides))
