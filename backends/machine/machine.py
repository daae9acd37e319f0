"""What a system says of itself for money, power and carbon: servers, racks, and the equipment of network levels.

Names are those of the price book: `parts`, `switches`, `adapters`, `cables` and `transceivers` of
`backends/prices/data/`. What nobody said is None: a cost then says that it is not priced, and what to add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...ir.sizes.expr import Num

Cooling: TypeAlias = Literal["air", "liquid"]
# What a network level joins: ranks, each with ports of its own, or the switches of the level below by their uplinks.
Joins: TypeAlias = Literal["ranks", "switches"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """So many of one part of the price book: `Fitted("host-cpu", 2)`."""

    part: str
    count: Num = 1.0


@dataclass(frozen=True, slots=True)
class Server:
    """What shares a board and a host: a node of the system.

    Attributes:
        price_usd: as bought, with its packages, parts and all network levels that lie inside of it.
        has_adapters: whether that price has the adapters of outer network levels in it.
        rest_w: what all but the packages draw at full load: hosts, memory, adapters, fans, losses; None for what
            its parts say.
        parts: what it is built of beside its packages, its host memory and its network.
        dram_bytes: memory of its hosts that is paid for; None for that of the system.
        cooling: what takes its heat away.
    """

    price_usd: Num | None = None
    has_adapters: bool = True
    rest_w: Num | None = None
    parts: tuple[Fitted, ...] = ()
    dram_bytes: Num | None = None
    cooling: Cooling = "air"


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

    num_servers: int
    price_usd: Num | None = None
    has_adapters: bool = True
    power_w: Num | None = None
    rest_w: Num = 0.0
    parts: tuple[Fitted, ...] = ()


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
    """

    switch: str = ""
    switches: Num | None = None
    adapter: str = ""
    adapters: Num = 1.0
    ports: Num | None = None
    cable: str = ""
    transceiver: str = ""
    fibre: str = ""
    lengths_mm: tuple[Num, ...] = ()
    copper_share: Num | None = None
    joins: Joins = "ranks"
