"""Interfaces between the dies of a package: what a bandwidth takes of area, edge and power.

All functions take numbers and arrays alike. A bandwidth is to one neighbour, one direction; areas, edges and powers are
of one die, for one neighbour.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import numpy as np

from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ...ir.units import format_bytes_per_s
from ..network.topology.level import Topology

# Wires that layers of an organic substrate draw from a millimetre of edge: lines and spaces of 9 um and 12 um, in two
# layers (IEEE HIR 2021, chapter 8, recalled).
ORGANIC_WIRES_PER_MM = 100.0
# How dies are joined, in the words of a network level. A mesh has two rows, as dies lie but in a line.
Join: TypeAlias = Literal["line", "ring", "mesh", "fully_connected"]
JOINS: tuple[Join, ...] = get_args(Join)


@dataclass(frozen=True, slots=True, kw_only=True)
class D2dKind:
    """A kind of interface, built of modules or taken as a share of a die.

    Attributes:
        name: of the technology's data.
        module_bytes_per_s: bandwidth of one module, one direction; inf where a share is all that is known.
        module_mm2: area of one module on one die.
        module_mm: edge of the die that one module takes.
        module_wires: wires for data of one module, both ways.
        area_share: part of the area of a die that an interface takes whatever its bandwidth, all neighbours together.
        energy_j_per_byte: of data one way, sender and receiver together.
        latency_s: from die to die.
        reach_mm: how far the other die may lie.
    """

    name: str
    module_bytes_per_s: float = math.inf
    module_mm2: float = 0.0
    module_mm: float = 0.0
    module_wires: float = 0.0
    area_share: float = 0.0
    energy_j_per_byte: float
    latency_s: float
    reach_mm: float = math.inf

    @property
    def fine_wires(self) -> bool:
        """Whether it has more wires along an edge than an organic substrate can draw."""
        return self.module_wires > ORGANIC_WIRES_PER_MM * self.module_mm

    def modules(self, bytes_per_s: Num) -> Num:
        """Return how many modules carry a bandwidth to one neighbour: ceil(BW / BW of a module).

        >>> kind = D2dKind(name="x", module_bytes_per_s=256e9, energy_j_per_byte=2e-12, latency_s=2e-9)
        >>> float(kind.modules(1e12))
        4.0
        """
        return np.ceil(bytes_per_s / self.module_bytes_per_s * (1 - 1e-12))

    def phy_mm2(self, bytes_per_s: Num, die_mm2: Num, neighbours: Num = 1.0) -> Num:
        """Return the area on a die of the interfaces to its neighbours; none without bandwidth."""
        flat = np.where(np.greater(bytes_per_s * neighbours, 0), self.area_share * die_mm2, 0.0)
        return self.modules(bytes_per_s) * self.module_mm2 * neighbours + flat

    def shoreline_mm(self, bytes_per_s: Num) -> Num:
        """Return the edge of a die that the interface to one neighbour takes."""
        return self.modules(bytes_per_s) * self.module_mm

    def power_w(self, bytes_per_s: Num) -> Num:
        """Return the power of a die for one neighbour at full bandwidth both ways.

        Each die sends one way and receives the other, half of the energy of a bit for each: BW x energy.
        """
        return bytes_per_s * self.energy_j_per_byte

    def widest_bytes_per_s(self, edge_mm: Num) -> Num:
        """Return the most bandwidth to one neighbour whose modules fit on an edge."""
        if not self.module_mm:
            return np.asarray(edge_mm) * math.inf
        return np.floor(np.asarray(edge_mm) / self.module_mm * (1 + 1e-12)) * self.module_bytes_per_s


def check_shoreline(kind: D2dKind, bytes_per_s: float, edge_mm: float) -> None:
    """Raise a UsageError where the modules of a bandwidth are longer than the edge that they stand on."""
    taken_mm, modules = float(kind.shoreline_mm(bytes_per_s)), float(kind.modules(bytes_per_s))
    if taken_mm <= edge_mm * (1 + 1e-12):
        return
    most = float(kind.widest_bytes_per_s(edge_mm))
    raise UsageError(
        f"no shoreline for {format_bytes_per_s(bytes_per_s)} of {kind.name}: {modules:g} modules take "
        f"{taken_mm:.4g} mm of an edge of {edge_mm:.4g} mm; at most {format_bytes_per_s(most)} fit"
    )


def as_join(name: str) -> Join:
    """Return a way to join dies; UnknownNameError names the nearest."""
    for join in JOINS:
        if join == name:
            return join
    raise UnknownNameError.of("way to join dies", name, JOINS)


def neighbours(join: Join, num_dies: Num) -> Num:
    """Return how many neighbours the dies with the most have: each die is made for them.

    >>> [float(neighbours(join, 4)) for join in JOINS]
    [2.0, 2.0, 2.0, 3.0]
    """
    others = np.asarray(num_dies) - 1.0
    most: Num = {"line": 2.0, "ring": 2.0, "mesh": 3.0, "fully_connected": math.inf}[join]
    if join == "mesh":
        most = np.where(np.equal(num_dies, 4), 2.0, 3.0)
    return np.minimum(others, most)


def links(join: Join, num_dies: Num) -> Num:
    """Return how many links a die has in the words of a network level, where ends and rims count those they lack.

    A member of a line or ring has a link either way, one of a mesh a link either way in both directions.
    """
    others = np.asarray(num_dies) - 1.0
    several: Num = 2.0 * np.ones_like(others)
    if join == "mesh":
        several = np.where(np.equal(num_dies, 4), 2.0, 4.0)
    if join == "fully_connected":
        several = others
    return np.where(np.less_equal(others, 1), others, several)


def memory_reach(join: Join, num_dies: Num) -> Num:
    """Return the most memory bandwidth of dies that are one device, over that of a link between two of them, one way.

    Each of k dies reads the stacks of all evenly. Of all bytes, n (k - n) / k^2 cross the middle each way, n dies being
    on its smaller side: over one link of a line, two of a ring or a mesh; of pairs that are all joined, 1 / k^2 a link.

    >>> [float(memory_reach(join, 4)) for join in JOINS]
    [4.0, 8.0, 8.0, 16.0]
    """
    dies = np.asarray(num_dies, dtype=np.float64)
    rows = np.where((join == "mesh") & np.greater(dies, 2), 2.0, 1.0)
    smaller = rows * np.floor(dies / rows / 2)
    across: Num = np.where(np.less_equal(dies, 2) | (join == "line"), 1.0, 2.0)
    crossing = np.where(join == "fully_connected", 1.0, smaller * (dies - smaller) / across)
    return np.where(np.less_equal(dies, 1), math.inf, dies**2 / np.maximum(crossing, 0.25))


def topology(join: Join, num_dies: int) -> tuple[Topology, str]:
    """Return the topology of the network level that joined dies are, and its dims.

    Two dies are joined one way only, and a mesh of two by two is a ring.

    >>> topology("mesh", 4), topology("mesh", 8), topology("line", 2)
    (('ring', ''), ('mesh', '2x4'), ('fully_connected', ''))
    """
    if num_dies <= 2:
        return "fully_connected", ""
    if join == "mesh" and num_dies > 4:
        return "mesh", f"2x{num_dies // 2}"
    return ("ring", "") if join == "mesh" else (join, "")


def span_mm(join: Join, num_dies: Num, side_mm: Num) -> Num:
    """Return how far apart dies that are joined lie: next to one another, but of all pairs in two rows of dies."""
    if join != "fully_connected":
        return np.asarray(side_mm) * 0.0
    between: Num = np.maximum(np.ceil(np.asarray(num_dies) / 2) - 2, 0.0)
    return between * side_mm
