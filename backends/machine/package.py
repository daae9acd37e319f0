"""A package as its makers describe it: dies and memories joined on substrates, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...ir.sizes.expr import Num

# How what is in a package is joined: on an organic substrate (flip chip, multi-chip module), on a fan-out layer of
# wires (InFO), on a silicon interposer (CoWoS-S), by silicon bridges in the substrate (EMIB) or in a layer of wires
# (CoWoS-L, EFB), or face to face, copper on copper (SoIC, Foveros Direct): the first content carries the others.
Joint: TypeAlias = Literal["organic", "fan_out", "interposer", "embedded_bridge", "fan_out_bridge", "hybrid_bond"]
Order: TypeAlias = Literal["chip_last", "chip_first"]
Bonding: TypeAlias = Literal["die_to_wafer", "wafer_to_wafer"]
# Most of the memory of its stacks that a chip does not offer: B300 keeps back 13 % for what is bad, and for ECC.
_KEPT_BACK = 0.2


@dataclass(frozen=True, slots=True)
class Harvest:
    """Units of a die of which some may be bad: 132 needed of 144, which take a share of the die's area."""

    units: int
    needed: int
    area_share: float


@dataclass(frozen=True, slots=True)
class D2d:
    """The interface of a die to its neighbours.

    Attributes:
        kind: by name of the technology's data, `ucie-advanced`; `area_share` for a flat part of the die.
        bytes_per_s: one direction, over one edge.
        edges: edges of the die that have one.
        level: the network level that it is, whose bandwidth it then has; empty where a die is no rank of its own.
    """

    kind: str
    bytes_per_s: Num
    edges: Num = 1.0
    level: str = ""


@dataclass(frozen=True, slots=True)
class Die:
    """Dies of one design.

    Attributes:
        name: of the design; dies of one name, in whatever product, share what it cost to design.
        node: technology node, `N5`.
        area_mm2: of one.
        count: how many of them.
        aspect: its longer side over the shorter.
        harvest: what may be bad in a good die.
        d2d: its interface to neighbours; the area is part of `area_mm2`.
        stitched: whether it may be larger than a reticle, exposed in several fields.
        design_mm2: area that was designed for it; None for all of it, less where blocks repeat.
    """

    name: str
    node: str
    area_mm2: Num
    count: Num = 1.0
    aspect: float = 1.0
    harvest: Harvest | None = None
    d2d: D2d | None = None
    stitched: bool = False
    design_mm2: Num | None = None


@dataclass(frozen=True, slots=True)
class Stack:
    """Stacks of memory, bought as known good: kind by name of the price book, `hbm3`."""

    kind: str
    num_bytes: Num
    count: Num = 1.0
    name: str = "memory"


@dataclass(frozen=True, slots=True)
class Assembly:
    """Dies, stacks and smaller assemblies on one substrate.

    Attributes:
        name: what people call it, `package`.
        joint: how they are joined.
        contents: what is on it; of a hybrid bond, the first carries the others.
        count: how many such assemblies.
        order: whether the substrate is tested before chips are put on it, of an interposer.
        bonding: how wafers are bonded, of a hybrid bond.
        bridges: silicon bridges in it; None for one between each two neighbours.
        substrate_mm2: of what carries the contents; None for what the price book makes of their area.
        design: name of what joins them, where several products share it; empty for a design of its own.
    """

    name: str
    joint: Joint
    contents: tuple[Die | Stack | Assembly, ...]
    count: Num = 1.0
    order: Order = "chip_last"
    bonding: Bonding = "die_to_wafer"
    bridges: Num | None = None
    substrate_mm2: Num | None = None
    design: str = ""

    @property
    def title(self) -> str:
        """What people call it where other things have names as well: `package`, `package quadrant`."""
        return self.name if self.name == "package" else f"package {self.name}"

    @property
    def dies(self) -> Iterator[Die]:
        """Every kind of die in it, those of smaller assemblies as well, with how many there are in all."""
        for die, _ in self.counted_dies():
            yield die

    def counted_dies(self, times: Num = 1.0) -> Iterator[tuple[Die, Num]]:
        """Yield every kind of die with how many of it the whole has."""
        for part in self.contents:
            if isinstance(part, Die):
                yield part, part.count * times
            elif isinstance(part, Assembly):
                yield from part.counted_dies(part.count * times)

    def counted_stacks(self, times: Num = 1.0) -> Iterator[tuple[Stack, Num]]:
        """Yield every kind of memory with how many stacks of it the whole has."""
        for part in self.contents:
            if isinstance(part, Stack):
                yield part, part.count * times
            elif isinstance(part, Assembly):
                yield from part.counted_stacks(part.count * times)


@dataclass(frozen=True, slots=True)
class Package:
    """What a chip of a system is sold in.

    Attributes:
        assembly: the outermost substrate and all that is on it.
        num_ranks: ranks of a plan in one package: 2 where each half is a device of its own.
        volume: packages made over the life of the product, over which its design is paid off.
        price_usd: what one is sold for, where that is known.
        gross_margin: part of the price that the maker keeps, where the price is not known.
        beside: memory on the board next to it, as GDDR and modules of DDR are.
    """

    assembly: Assembly
    num_ranks: int = 1
    volume: Num | None = None
    price_usd: Num | None = None
    gross_margin: Num | None = None
    beside: tuple[Stack, ...] = ()

    @property
    def rank_bytes(self) -> Num:
        """Memory of the stacks, in it and beside it, that one rank has."""
        return sum((stack.num_bytes * count for stack, count in self.counted_stacks()), start=0.0) / self.num_ranks

    @property
    def rank_units(self) -> Num | None:
        """Units of a rank that must work, of dies of which some may be bad; None where no die says how many it has."""
        found = [die.harvest.needed * count for die, count in self.assembly.counted_dies() if die.harvest is not None]
        return sum(found) / self.num_ranks if found else None

    def holds(self, num_bytes: Num) -> bool | NDArray[np.bool_]:
        """Whether its stacks hold what a chip offers: all of it, of which makers keep back a fifth at most."""
        least, most = (1.0 - _KEPT_BACK) * self.rank_bytes, self.rank_bytes * (1.0 + 1e-9)
        return (least <= num_bytes) & (num_bytes <= most) | (self.rank_bytes == 0.0)

    def counted_stacks(self) -> Iterator[tuple[Stack, Num]]:
        """Yield every kind of memory, in it and beside it, with how many stacks or devices there are."""
        yield from self.assembly.counted_stacks()
        yield from ((stack, stack.count) for stack in self.beside)
