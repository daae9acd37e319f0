"""A server into its bill and its power: as bought, or built of its packages and parts.

    built  packages + parts + memory + USD/A * P/V of converters + USD/W * P of supplies, all of it / (1 - gross margin)
    power  packages + the rest as its maker says; else (packages/eta_dcdc + parts + memory + network in it)/eta_psu

Source of the form and of the numbers of converters and supplies: Chiplet Cloud (github bespoke-silicon-group/reallm).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from ...backends.machine.chip import Chip
from ...backends.machine.machine import FittedPart, ServerNode
from ...backends.machine.system import System
from ...backends.prices.section import Prices
from ...ir.sizes.expr import Num
from ..bill import Bill
from .cabling.trees import plain
from .owned import Owned, counted, entry

# Whether what is sold is priced as it is sold, or all is priced by what it is made of.
Basis: TypeAlias = Literal["market", "build"]
_NO_SERVER = ServerNode()
_AT_COST = (
    "margin of package vendors (packages are priced at their manufacturing cost): "
    "add package.price or package.gross_margin to the chip"
)


def server_cost(system: System, prices: Prices, basis: Basis, package: Bill | None, network_w: Num = 0.0) -> Owned:
    """Price one server, without what joins it to others.

    Args:
        system: whose node it is.
        prices: of everything.
        basis: `market` for the price that it is sold at, where that is known.
        package: manufacturing cost of one package; None where nobody can say.
        network_w: what the network in it draws, which is in what a maker says of its power.
    """
    power = _power(system, prices, network_w)
    if basis == "market" and system.server is not None and system.server.price_usd is not None:
        price_usd = system.server.price_usd
        bought = Bill("server", price_usd, "price_usd", {"price_usd": price_usd}, ("server.price",))
        return Owned(bought, power.power_w, power.unpriced)
    parts = Owned.of("parts", list(_parts(system, prices, basis, package, power.power_w)))
    return Owned(_sold(parts.bill, prices), power.power_w, (*parts.unpriced, *power.unpriced))


def _sold(parts: Bill, prices: Prices) -> Bill:
    """What is made with the part of its price that its maker keeps."""
    share = prices.section.servers.gross_margin.si
    kept_usd = parts.usd * (share / (1.0 - share))
    values = {"parts_usd": parts.usd, "share": share}
    margin = Bill("margin", kept_usd, "parts_usd * share / (1 - share)", values, ("prices.servers.gross_margin",))
    return Bill.of("server", [*parts.parts, margin])


def _parts(system: System, prices: Prices, basis: Basis, package: Bill | None, power_w: Num) -> Iterator[Owned]:
    yield _packages(system, prices, basis, package)
    if system.server is None:
        yield Owned(Bill("host", 0.0), unpriced=("server: add a section server (price, or parts) to the system",))
        return
    for part in system.server.parts:
        yield part_cost(part, prices)
    yield _memory(system, prices)
    s = prices.section.servers
    amperes = system.node_size * watts_of(system.chip) / s.core_voltage.si
    yield counted("converters", amperes, s.dcdc, "prices.servers.dcdc")
    yield counted("power supplies", power_w, s.psu, "prices.servers.psu")


def part_cost(part: FittedPart, prices: Prices) -> Owned:
    """Price some of one part; UnknownNameError for one that the book does not have."""
    found = entry(prices.section.parts, "part", part.part)
    return counted(part.part, part.count, found.price, f"prices.parts.{part.part}.price", found.power.si)


def _packages(system: System, prices: Prices, basis: Basis, package: Bill | None) -> Owned:
    """The packages of a server: at the price that they are sold for, else at cost / (1 - gross margin).

    What a chip says of its margin is what it is sold with; who builds for itself keeps what the book says.
    """
    described = system.package
    count = system.node_size / (1 if described is None else described.num_ranks)
    if basis == "market" and described is not None and described.price_usd is not None:
        values: dict[str, Num] = {"count": count, "price_usd": described.price_usd}
        usd = count * described.price_usd
        return Owned(Bill("packages", usd, "count * price_usd", values, ("chip.package.price",)))
    if package is None:
        return Owned(Bill("packages", 0.0), unpriced=("packages: add a section package to the chip",))
    share = described.gross_margin if described is not None and basis == "market" else None
    kept = prices.section.servers.package_margin.si if share is None else share
    margin = Bill(
        "margin",
        package.usd * kept / (1.0 - kept),
        "made_usd * share / (1 - share)",
        {"made_usd": package.usd, "share": kept},
        ("prices.servers.package_margin",) if share is None else ("chip.package.gross_margin",),
    )
    bill = Bill.of("packages", [package, margin]).times(count)
    return Owned(bill, unpriced=(_AT_COST,) if basis == "market" and share is None and np.all(kept == 0.0) else ())


def _memory(system: System, prices: Prices) -> Owned:
    num_bytes = host_bytes(system)
    price = prices.section.servers.host_memory
    if num_bytes is None:
        return Owned(Bill("host memory", 0.0), unpriced=("host memory: add node.host_memory to the system",))
    watts = prices.section.servers.host_memory_power.si
    owned = counted("host memory", num_bytes, price, "prices.servers.host_memory", watts)
    factor = prices.section.dram_factor.si
    return owned if factor == 1.0 else replace(owned, bill=owned.bill.times(factor))


def host_bytes(system: System) -> Num | None:
    """Return the memory of the hosts of a server; None where nobody said."""
    if system.server is not None and system.server.dram_bytes is not None:
        return system.server.dram_bytes
    return None if system.host is None else system.host.num_bytes


def watts_of(chip: Chip) -> Num:
    """Return what a chip draws at most: its design power, or what it is allowed."""
    return chip.power_w if chip.power_limit_w is None else plain(np.minimum(chip.power_w, chip.power_limit_w))


def _power(system: System, prices: Prices, network_w: Num) -> Owned:
    """What a server draws: the bill of it is empty."""
    packages_w = system.node_size * watts_of(system.chip)
    server = system.server
    if server is not None and server.rest_w is not None:
        return Owned(Bill("power", 0.0), packages_w + server.rest_w)
    beside = [part_cost(p, prices) for p in (server or _NO_SERVER).parts]
    beside += [] if server is None else [_memory(system, prices)]
    s = prices.section.servers
    rest_w = sum((p.power_w for p in beside), start=0.0) + network_w
    total_w = (packages_w / s.dcdc_efficiency.si + rest_w) / s.psu_efficiency.si
    missing = () if server is not None and server.parts else ("power of hosts: add server.rest_power to the system",)
    return Owned(Bill("power", 0.0), total_w, missing)
