"""A package as its makers describe it: dies and memories joined on substrates, as a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .files.kinds import (
    ASPECT,
    BANDWIDTH,
    CAPACITY,
    COUNT,
    DIE_AREA,
    MARGIN,
    PRICE,
    RATIO,
    SOME,
    VOLUME,
    WIRE_ENERGY,
    Key,
    Least,
    TextPattern,
    Unwritten,
)

# How what is in a package is joined: on an organic substrate (flip chip, multi-chip module), on a fan-out layer of
# wires (InFO), on a silicon interposer (CoWoS-S), by silicon bridges in the substrate (EMIB) or in a layer of wires
# (CoWoS-L, EFB), or face to face, copper on copper (SoIC, Foveros Direct): the first content carries the others.
Joint: TypeAlias = Literal["organic", "fan_out", "interposer", "embedded_bridge", "fan_out_bridge", "hybrid_bond"]
Order: TypeAlias = Literal["chip_last", "chip_first"]
Bonding: TypeAlias = Literal["die_to_wafer", "wafer_to_wafer"]
# Most of the memory of its stacks that a chip does not offer: B300 keeps back 13 % for what is bad, and for ECC.
_KEPT_BACK = 0.2
Name: TypeAlias = Annotated[str, TextPattern(r"^[A-Za-z0-9_-]+$"), Key("name", needed=True)]


@dataclass(frozen=True, slots=True)
class Harvest:
    """Units of a die of which some may be bad: 132 needed of 144, which take a share of the die's area."""

    units: Annotated[int, COUNT]
    needed: Annotated[int, COUNT]
    area_share: Annotated[float, RATIO]

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield that more must be good than there are."""
        if self.needed > self.units:
            yield f"{self.needed:g} units needed are more than the {self.units:g} that there are"


@dataclass(frozen=True, slots=True)
class D2d:
    """The interface of a die to its neighbours.

    Attributes:
        kind: by name of the technology's data, `ucie-advanced`; `area_share` for a flat part of the die.
        bytes_per_s: one direction, over one edge; nan for that of a link of its level.
        edges: edges of the die that have one.
        level: the network level that it is, whose bandwidth it then has; empty where a die is no rank of its own.
        energy_j_per_byte: of data one way, sender and receiver together; None for that of its kind.
    """

    kind: str
    bytes_per_s: Annotated[Num, Key("bandwidth"), BANDWIDTH] = nan
    edges: Annotated[Num, COUNT] = 1.0
    level: str = ""
    energy_j_per_byte: Annotated[Num | None, Key("energy"), WIRE_ENERGY] = None

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield that nothing says how fast it is."""
        if "bytes_per_s" not in found and "level" not in found:
            yield "missing bandwidth, or the level of the network that it is"


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

    ORDER: ClassVar = ("name", "count")
    called: ClassVar = "part"
    holds: ClassVar = frozenset(("node", "area"))

    name: Name
    node: str
    area_mm2: Annotated[Num, Key("area"), DIE_AREA]
    count: Annotated[Num, COUNT] = 1.0
    aspect: Annotated[float, ASPECT] = 1.0
    harvest: Harvest | None = None
    d2d: D2d | None = None
    stitched: bool = False
    design_mm2: Annotated[Num | None, Key("design_area"), DIE_AREA] = None

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield sizes that contradict one another."""
        if self.aspect < 1:
            yield f"aspect {self.aspect:g} is below 1: it is the longer side over the shorter"
        elif self.design_mm2 is not None and self.design_mm2 > self.area_mm2:
            yield f"design_area {self.design_mm2:g} mm2 is more than its area, {self.area_mm2:g} mm2"


@dataclass(frozen=True, slots=True)
class Stack:
    """Stacks of memory, bought as known good: kind by name of the price book, `hbm3`."""

    ORDER: ClassVar = ("name", "count")
    called: ClassVar = "part"
    holds: ClassVar = frozenset(("memory", "capacity"))

    kind: Annotated[str, Key("memory")]
    num_bytes: Annotated[Num, Key("capacity"), CAPACITY]
    count: Annotated[Num, COUNT] = 1.0
    name: Name = "memory"


# What some joints have alone.
_OF_JOINTS: Mapping[str, tuple[Joint, ...]] = {
    "order": ("fan_out", "interposer", "fan_out_bridge"),
    "bonding": ("hybrid_bond",),
    "bridges": ("embedded_bridge", "fan_out_bridge"),
}


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

    ORDER: ClassVar = ("joint", "contents", "order", "bonding", "bridges", "substrate_area", "design", "name", "count")
    called: ClassVar = "part"
    holds: ClassVar = frozenset(("joint", "contents"))

    name: Name
    joint: Joint
    contents: Annotated[tuple[Assembly | Stack | Die, ...], Least()]
    count: Annotated[Num, COUNT] = 1.0
    order: Order = "chip_last"
    bonding: Bonding = "die_to_wafer"
    bridges: Annotated[Num | None, SOME] = None
    substrate_mm2: Annotated[Num | None, Key("substrate_area"), DIE_AREA] = None
    design: Annotated[str, TextPattern(r"^[A-Za-z0-9_-]+$")] = ""

    def faults(self, found: Mapping[str, object], beside: Sequence[Stack] = ()) -> Iterator[str]:
        """Yield parts of one name, and what other joints have alone."""
        names = Counter(part.name for part in (*self.contents, *beside))
        repeated = [name for name, times in names.items() if times > 1]
        if repeated:
            yield f"part named twice: {', '.join(repeated)}"
        if self.joint == "hybrid_bond" and len(self.contents) < 2:
            yield "a hybrid_bond joins two parts or more: the first carries the others"
        for key, joints in _OF_JOINTS.items():
            if key in found and self.joint not in joints:
                yield f"{key} is for {', '.join(joints)}, not for {self.joint}"

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

    assembly: Annotated[Assembly, Unwritten()]
    num_ranks: Annotated[int, COUNT] = 1
    volume: Annotated[Num | None, VOLUME] = None
    price_usd: Annotated[Num | None, Key("price"), PRICE] = None
    gross_margin: Annotated[Num | None, MARGIN] = None
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


def levels_of_dies(
    whole: Assembly, keys: tuple[str | int, ...], path: str
) -> Iterator[tuple[D2d, tuple[str | int, ...], str]]:
    """Yield each interface of a die that is a level of a network, with the way to it in a file and for people."""
    for place, part in enumerate(whole.contents):
        here, shown = (*keys, "contents", place), f"{path}.contents.{part.name}"
        if isinstance(part, Assembly):
            yield from levels_of_dies(part, here, shown)
        elif isinstance(part, Die) and part.d2d is not None and part.d2d.level:
            yield part.d2d, (*here, "d2d", "level"), f"{shown}.d2d.level"


def with_link_rates(whole: Assembly, rates: Mapping[str, Num]) -> Assembly:
    """Return an assembly whose interfaces have the rates of the links that they are, where nothing else is said."""

    def rated(part: Die | Stack | Assembly) -> Die | Stack | Assembly:
        if isinstance(part, Assembly):
            return with_link_rates(part, rates)
        if isinstance(part, Stack) or part.d2d is None or not np.all(np.isnan(part.d2d.bytes_per_s)):
            return part
        return replace(part, d2d=replace(part.d2d, bytes_per_s=rates.get(part.d2d.level, nan)))

    return replace(whole, contents=tuple(map(rated, whole.contents)))
