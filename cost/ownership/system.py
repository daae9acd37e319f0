"""A system of so many accelerators into all that is bought for it: servers, racks, network, building.

On the basis `market`, what is sold is priced as it is sold, with all that is in it; what nobody sells is built.
On the basis `build`, everything is priced by what it is made of. Servers and racks are bought whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from ...backends.machine.machine import Rack
from ...backends.machine.system import System
from ...backends.prices.section import Prices
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..bill import Bill
from .cabling.network import LevelCost, network_costs
from .cabling.trees import plain
from .owned import Owned
from .server import Basis, part_cost, server_cost
from .tco import Estate, facility_bill


@dataclass(frozen=True, slots=True)
class SystemCost:
    """What a system costs to buy.

    Attributes:
        num_gpus: accelerators that are asked for.
        num_servers: servers that have them.
        gpus_bought: accelerators of all servers and racks, which are bought whole.
        servers: servers and racks.
        network: what joins them, level by level.
        estate: the same for what owning adds: see `tco`.
        facility: the part of a building.
        levels: the network levels, with how many switches and links each has.
    """

    num_gpus: Num
    num_servers: Num
    gpus_bought: Num
    servers: Owned
    network: Owned
    estate: Estate
    facility: Bill
    levels: tuple[LevelCost, ...]

    @property
    def bill(self) -> Bill:
        """All of it: `servers`, `network`, `facility`."""
        return Bill.of("system", [self.servers.bill, self.network.bill, self.facility])

    @property
    def power_w(self) -> Num:
        """What the machines draw at full load, without the building around them."""
        return self.servers.power_w + self.network.power_w

    @property
    def unpriced(self) -> tuple[str, ...]:
        """What is missing in the bill, each with what to add; the bill is a lower bound where there is any."""
        return tuple(dict.fromkeys((*self.servers.unpriced, *self.network.unpriced)))


def system_cost(
    system: System, num_gpus: Num, prices: Prices, basis: Basis = "market", package: Bill | None = None
) -> SystemCost:
    """Price a system of so many accelerators.

    Args:
        system: with its server, rack and equipment of network levels; what it does not say is named in `unpriced`.
        num_gpus: accelerators, one number or many.
        prices: of everything.
        basis: `market` or `build`: see the top of the module.
        package: manufacturing cost of one package, where its price is not known or not wanted.

    Raises:
        UsageError: no accelerators, or a switch of so few ports that no tree can be made of it.
        UnknownNameError: equipment or parts that are not in the price book.
    """
    if np.any(np.asarray(num_gpus) < 1):
        raise UsageError(f"a system of {np.min(num_gpus):g} accelerators: 1 or more")
    num_servers = plain(np.ceil(np.asarray(num_gpus) / system.node_size))
    levels = network_costs(system.levels, num_gpus, prices, system.node_size)
    inside_w = sum((_in_server_w(system, level, num_gpus) for level in levels), start=0.0)
    server = server_cost(system, prices, basis, package, inside_w)
    servers = _racked(system, server.times(num_servers, "servers"), num_servers, prices, basis)
    network = Owned.of("network", list(_network(system, levels, basis)))
    said = None if system.server is None else system.server.cooling
    cooling: Literal["air", "liquid"] = "air" if said in (None, "air") else "liquid"
    power_w = servers.power_w + network.power_w
    estate = Estate(servers.bill.usd, network.bill.usd, power_w, num_servers, cooling)
    rack = system.rack
    in_one = rack.num_servers if basis == "market" and rack is not None and rack.price_usd is not None else 1
    bought = plain(np.ceil(np.asarray(num_servers) / in_one) * in_one * system.node_size)
    return SystemCost(num_gpus, num_servers, bought, servers, network, estate, facility_bill(estate, prices), levels)


def _racked(system: System, servers: Owned, num_servers: Num, prices: Prices, basis: Basis) -> Owned:
    """Servers with the racks that they stand in, or racks that are bought full."""
    rack = system.rack
    if rack is None:
        missing = "racks: add a section rack (servers in one, price or parts) to the system"
        return Owned.of("servers", [servers, Owned(Bill("racks", 0.0), unpriced=(missing,))])
    whole = basis == "market" and rack.price_usd is not None
    in_one = rack.num_servers if whole else _in_one(rack, servers.power_w / num_servers)
    num_racks = plain(np.ceil(np.asarray(num_servers) / in_one))
    if whole and rack.price_usd is not None:
        values: dict[str, Num] = {"count": num_racks, "price_usd": rack.price_usd}
        bought = Bill("racks", num_racks * rack.price_usd, "count * price_usd", values, ("rack.price",))
        return Owned(Bill.of("servers", [bought]), servers.power_w + num_racks * rack.rest_w)
    parts = Owned.of("racks", [part_cost(p, prices) for p in rack.parts])
    racks = Owned(parts.bill, parts.power_w + rack.rest_w, parts.unpriced).times(num_racks)
    return Owned.of("servers", [servers, racks])


# Keeps a rack computable whose own parts draw all that it may.
_LEAST_W = 1.0


def _in_one(rack: Rack, server_w: Num) -> Num:
    """Servers of a rack, as many as it has room and power for; one that draws more stands in several racks."""
    if rack.power_w is None:
        return rack.num_servers
    share = np.maximum(rack.power_w - rack.rest_w, _LEAST_W) / np.asarray(server_w)
    held: Num = np.where(share < 1.0, 1.0 / np.ceil(1.0 / share), np.minimum(np.floor(share), rack.num_servers))
    return held


def _network(system: System, levels: Sequence[LevelCost], basis: Basis) -> Iterator[Owned]:
    """Each level, less what was bought with servers and racks, and less the power that servers have in theirs."""
    for level in levels:
        inside = _lies_in(level, _bought_ranks(system, basis))
        parts = [] if inside else [level.fabric]
        parts += [] if inside or _has_adapters(system, basis) else [level.adapters]
        lines = (*(() if inside else level.fabric.bill.parts), *(p.bill for p in parts if p is level.adapters))
        bill = Bill.of(level.level.name, lines)
        missing = tuple(line for p in parts for line in p.unpriced)
        outside_w = 0.0 if _lies_in(level, system.node_size) else level.fabric.power_w
        yield Owned(bill, outside_w, missing)


def _in_server_w(system: System, level: LevelCost, num_gpus: Num) -> Num:
    """What a level draws in one server: its adapters, and its switches where all of it lies in there."""
    share = system.node_size / np.asarray(num_gpus)
    fabric_w = level.fabric.power_w if _lies_in(level, system.node_size) else 0.0
    return (level.adapters.power_w + fabric_w) * share


def _lies_in(level: LevelCost, num_ranks: int) -> bool:
    return level.level.size is not None and level.level.size <= num_ranks


def _bought_ranks(system: System, basis: Basis) -> int:
    """Ranks in what is bought whole, with the network in it."""
    if basis == "build":
        return 0
    if system.rack is not None and system.rack.price_usd is not None:
        return system.node_size * system.rack.num_servers
    return system.node_size if system.server is not None and system.server.price_usd is not None else 0


def _has_adapters(system: System, basis: Basis) -> bool:
    """Whether what is bought has the adapters of outer levels in it."""
    if basis == "build":
        return False
    if system.rack is not None and system.rack.price_usd is not None:
        return system.rack.has_adapters
    return system.server is not None and system.server.price_usd is not None and system.server.has_adapters
