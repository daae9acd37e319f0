"""Network levels into what they are built of: switches, adapters, cables and optics, counted, priced, with power.

Copper joins what its reach allows, optics the rest: two transceivers and a fibre a link. A switch draws its power with
all ports lit; optics and adapters at ranks draw their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....backends.machine.machine import LevelEquipment
from ....backends.network.topology.level import SWITCHED, NetworkLevel
from ....backends.prices.ownership_schema import SwitchSection
from ....backends.prices.section import Prices
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ...bill import Bill
from ..owned import Owned, counted, entry
from .wiring import LevelPorts, Wiring, wiring


@dataclass(frozen=True, slots=True)
class LevelCost:
    """One level of the network of a system.

    Attributes:
        level: the level.
        fabric: switches, links and optics; `power_w` is that of switches.
        adapters: between ranks and the level, with the optics in them: part of a server.
        wiring: how many of all that; None where nobody said what the level is built of.
    """

    level: NetworkLevel
    fabric: Owned
    adapters: Owned
    wiring: Wiring | None = None


def network_costs(
    levels: Sequence[NetworkLevel], num_ranks: Num, prices: Prices, in_server: int = 1
) -> tuple[LevelCost, ...]:
    """Price every level for so many ranks, inner to outer; levels of up to `in_server` ranks are part of a server.

    Raises:
        UsageError: a switch of so few ports that no tree can be made of it.
        UnknownNameError: equipment that is not in the price book.
    """
    found: list[LevelCost] = []
    inner = 1
    for level, outer in zip(levels, (*levels[1:], None), strict=True):
        # Part of the ports of the topmost tier of a level that go down, where another level sits on its switches.
        above = (
            1.0
            if outer is None or outer.equipment is None or outer.equipment.joins != "switches"
            else outer.oversubscription / (1.0 + outer.oversubscription)
        )
        meeting = LevelPorts(above=above, back_to_back=inner <= in_server)
        cost = _level_cost(level, inner, num_ranks, meeting, prices)
        found.append(cost if level.size is not None and level.size <= in_server else _with_switches(cost))
        inner = level.size or inner
    return tuple(found)


def _with_switches(cost: LevelCost) -> LevelCost:
    """Name the switches that a level between servers must have, where nobody said which."""
    level, equipment = cost.level, cost.level.equipment
    if equipment is None or equipment.switch or level.topology not in (*SWITCHED, "dragonfly"):
        return cost
    if cost.wiring is None or not np.any(cost.wiring.ranks):
        return cost
    missing = f"switches of network level {level.name}: add network.{level.name}.equipment.switch"
    return replace(cost, fabric=replace(cost.fabric, unpriced=(*cost.fabric.unpriced, missing)))


def _level_cost(level: NetworkLevel, inner: int, num_ranks: Num, meeting: LevelPorts, prices: Prices) -> LevelCost:
    equipment = level.equipment
    if equipment is None:
        what = f"network level {level.name}: add network.{level.name}.equipment (switch, adapter, transceiver, ...)"
        missing = (what,) if np.any(np.asarray(num_ranks) > inner) else ()
        return LevelCost(level, Owned(Bill("fabric", 0.0), unpriced=missing), Owned(Bill("adapters", 0.0)))
    switch = entry(prices.section.switches, "switch", equipment.switch) if equipment.switch else None
    wires = wiring(level, inner, num_ranks, _ports(level, equipment, switch, meeting))
    fabric = Owned.of("fabric", [_switches(equipment, switch, wires, prices), *_links(equipment, wires, prices)])
    return LevelCost(level, fabric, _adapters(equipment, wires, prices), wires)


def _ports(
    level: NetworkLevel, equipment: LevelEquipment, switch: SwitchSection | None, meeting: LevelPorts
) -> LevelPorts:
    """Ports of a rank as told, else its bandwidth over that of a port of the switch."""
    of_rank = equipment.ports
    if switch is None:
        return replace(meeting, of_rank=of_rank)
    if of_rank is None and level.topology in SWITCHED:
        of_rank = level.bytes_per_s / switch.rate.si
    return replace(meeting, of_rank=of_rank, of_switch=int(switch.ports.si))


def _switches(equipment: LevelEquipment, switch: SwitchSection | None, wires: Wiring, prices: Prices) -> Owned:
    if switch is None:
        return Owned(Bill("switches", 0.0))
    path = f"prices.switches.{equipment.switch}.price"
    return counted("switches", wires.switches, switch.price, path, switch.power.si)


def _links(equipment: LevelEquipment, wires: Wiring, prices: Prices) -> Sequence[Owned]:
    """Copper cables, optics and fibres; none where wires are part of boards."""
    if not equipment.cable and not equipment.transceiver:
        return ()
    copper = sum((n * _copper_share(equipment, k, prices) for k, n in enumerate(wires.links)), start=0.0)
    optical = wires.num_links - copper
    book = prices.section
    found: list[Owned] = []
    if equipment.cable:
        cable = entry(book.cables, "cable", equipment.cable)
        found.append(counted("copper cables", copper, cable.price, f"prices.cables.{equipment.cable}.price"))
    if equipment.transceiver:
        optics = entry(book.transceivers, "transceiver", equipment.transceiver)
        path = f"prices.transceivers.{equipment.transceiver}.price"
        found.append(counted("transceivers", 2.0 * optical, optics.price, path))
    if equipment.fibre:
        fibre = entry(book.fibres, "fibre", equipment.fibre)
        _check_reach(equipment, len(wires.links), prices, fibre.reach.si)
        found.append(counted("fibres", optical, fibre.price, f"prices.fibres.{equipment.fibre}.price"))
    return found


def _check_reach(equipment: LevelEquipment, num_tiers: int, prices: Prices, reach_mm: float) -> None:
    """Raise UsageError for links of light that are longer than their fibre reaches."""
    tiers = (k for k in range(num_tiers) if np.any(np.less(_copper_share(equipment, k, prices), 1.0)))
    longest = max((float(np.max(_length_mm(equipment, k))) for k in tiers if equipment.lengths_mm), default=0.0)
    if longest > reach_mm * (1 + 1e-9):
        raise UsageError(
            f"links of {longest / 1e3:g} m are longer than the {reach_mm / 1e3:g} m that fibre {equipment.fibre} "
            "reaches: take another fibre, or give shorter lengths"
        )


def _length_mm(equipment: LevelEquipment, tier: int) -> Num:
    return equipment.lengths_mm[min(tier, len(equipment.lengths_mm) - 1)]


def _copper_share(equipment: LevelEquipment, tier: int, prices: Prices) -> Num:
    """Part of the links of a tier that are copper; links of which nobody says how long they are, are optics."""
    if not equipment.cable or not equipment.transceiver:
        return 1.0 if equipment.cable else 0.0
    if tier == 0 and equipment.copper_share is not None:
        return equipment.copper_share
    if not equipment.lengths_mm:
        return 0.0
    length_mm = _length_mm(equipment, tier)
    reach_mm = entry(prices.section.cables, "cable", equipment.cable).reach.si
    return np.where(np.asarray(length_mm) <= reach_mm, 1.0, 0.0)


def _adapters(equipment: LevelEquipment, wires: Wiring, prices: Prices) -> Owned:
    """Adapters, and the power of the optics at their ends of links."""
    light_w = _optics_w(equipment, wires, prices)
    if not equipment.adapter:
        return Owned(Bill("adapters", 0.0), power_w=light_w)
    adapter = entry(prices.section.adapters, "adapter", equipment.adapter)
    path = f"prices.adapters.{equipment.adapter}.price"
    found = counted("adapters", wires.ranks * equipment.adapters, adapter.price, path, adapter.power.si)
    return replace(found, power_w=found.power_w + light_w)


def _optics_w(equipment: LevelEquipment, wires: Wiring, prices: Prices) -> Num:
    if not equipment.transceiver:
        return 0.0
    optics = entry(prices.section.transceivers, "transceiver", equipment.transceiver)
    return wires.ends * (1.0 - _copper_share(equipment, 0, prices)) * optics.power.si
