"""What a system says of itself for money, power and carbon: servers, racks, and the equipment of network levels.

Names are those of the price book: `parts`, `switches`, `adapters`, `cables` and `transceivers` of
`backends/prices/data/`. What nobody said is None: a cost then says that it is not priced, and what to add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias

from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .files.kinds import CABLE_LENGTH, COUNT, POWER, PRICE, RESERVE, REST_POWER, SHARE, SOME, WIRE_ENERGY, Key

Cooling: TypeAlias = Literal["air", "liquid", "two-phase"]
# What a network level joins: ranks, each with ports of its own, or the switches of the level below by their uplinks.
Joins: TypeAlias = Literal["ranks", "switches"]
# Kinds of links whose energy is that of optics, too.
OPTICS = frozenset(("pluggable", "linear", "co-packaged"))


@dataclass(frozen=True, slots=True)
class FittedPart:
    """So many of one part of the price book: `FittedPart("host-cpu", 2)`."""

    called: ClassVar = "part"

    part: Annotated[str, Key("name")]
    count: Annotated[Num, SOME] = 1.0


def _part_faults(parts: Sequence[FittedPart]) -> Iterator[str]:
    repeated = [name for name, times in Counter(part.part for part in parts).items() if times > 1]
    if repeated:
        yield f"part named twice, give its count: {', '.join(repeated)}"


@dataclass(frozen=True, slots=True)
class ServerNode:
    """What shares a board and a host: a node of the system.

    Attributes:
        price_usd: as bought, with its packages, parts and all network levels that lie inside of it.
        has_adapters: whether that price has the adapters of outer network levels in it.
        rest_w: what all but the packages draw at full load: hosts, memory, adapters, fans, losses; None for what
            its parts say.
        parts: what it is built of beside its packages, its host memory and its network.
        dram_bytes: memory of its hosts that is paid for; None for that of the system.
        cooling: what takes its heat away, of which dies may make no more; None for air that nobody checks.
    """

    ORDER: ClassVar = ("price", "has_adapters", "parts")

    price_usd: Annotated[Num | None, Key("price"), PRICE] = None
    has_adapters: bool = True
    rest_w: Annotated[Num | None, Key("rest_power"), REST_POWER] = None
    parts: tuple[FittedPart, ...] = ()
    dram_bytes: Annotated[Num | None, Key("dram"), RESERVE] = None
    cooling: Cooling | None = None

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield parts that are named more than once."""
        return _part_faults(self.parts)


@dataclass(frozen=True, slots=True)
class Rack:
    """What servers stand in.

    Attributes:
        num_servers: servers in one.
        price_usd: as bought, with its servers and all network levels that lie inside of it.
        has_adapters: whether that price has the adapters of outer network levels in it.
        power_w: the most that one may draw, all that is in it together; None for no limit.
        rest_w: what draws power in it beside servers and switches: fans, pumps, shelves of supplies.
        parts: what it is built of: the frame, power shelves, manifolds.
    """

    ORDER: ClassVar = ("price", "has_adapters", "parts")

    num_servers: Annotated[int, Key("servers"), COUNT]
    price_usd: Annotated[Num | None, Key("price"), PRICE] = None
    has_adapters: bool = True
    power_w: Annotated[Num | None, Key("power"), POWER] = None
    rest_w: Annotated[Num, Key("rest_power"), REST_POWER] = 0.0
    parts: tuple[FittedPart, ...] = ()

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield parts that are named more than once."""
        return _part_faults(self.parts)


@dataclass(frozen=True, slots=True)
class LevelEquipment:
    """What a network level is built of; how many of each follows from its topology and the number of ranks.

    Attributes:
        switch: kind of switch; empty where there is none, or a level has switches that are part of something bought.
        switches: of one group of the level where its makers say so; None for what ports and tiers come to.
        adapter: kind of adapter between a rank and the level; empty where ports are on the package.
        adapters: of one rank.
        ports: links of a rank into the level; None for its bandwidth over that of a port of the switch.
        cable: kind of copper cable, for links within its reach; empty where wires are part of a board or backplane.
        transceiver: kind of optics at both ends of a longer link.
        fibre: kind of cable between two of these.
        lengths_mm: of the links, tier by tier from the ranks up; the last one for all further tiers.
        copper_share: part of the links of the first tier that are within reach of copper; None for all or none,
            as the length says.
        joins: whether ranks have ports of their own into the level, or the switches of the level below have uplinks.
        link: how bytes leave the package for it, of `prices.energy.links`; empty for `pcie` to an adapter, `electrical`
            without one.
        energy_j_per_byte: of a byte that does; None for that of its kind.
    """

    switch: str = ""
    switches: Annotated[Num | None, SOME] = None
    adapter: str = ""
    adapters: Annotated[Num, SOME] = 1.0
    ports: Annotated[Num | None, SOME] = None
    cable: str = ""
    transceiver: str = ""
    fibre: str = ""
    lengths_mm: Annotated[tuple[Annotated[Num, CABLE_LENGTH], ...], Key("lengths")] = ()
    copper_share: Annotated[Num | None, SHARE] = None
    joins: Joins = "ranks"
    link: str = ""
    energy_j_per_byte: Annotated[Num | None, Key("energy", column=False), WIRE_ENERGY] = None

    @property
    def link_kind(self) -> str:
        """How bytes leave a package."""
        return self.link or ("pcie" if self.adapter else "electrical")

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield what is counted, or said, of nothing."""
        if self.switches is not None and not self.switch:
            yield "switches are counted: name the switch"
        if found.get("adapters") is not None and not self.adapter:
            yield "adapters are counted: name the adapter"
        if self.joins == "switches" and self.adapter:
            yield "a level that joins switches has no adapters of ranks"
        if self.transceiver and self.link in OPTICS:
            yield f"optics count twice: transceiver {self.transceiver} by its power and link: {self.link} by the bit"
        if self.copper_share is not None and not self.cable:
            yield "copper_share is of a cable: name the cable"
