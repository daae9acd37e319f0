"""Shares of a budget that follow from what is put on a chip, in place of those of the chip that a unit is from.

Every part takes what it needs, and the units the rest:

    area   memory = stacks controller, network = lanes lane, caches their unit's share, units what is left of the unit's
    power  memory = leakage + speed rated, network = lanes rated, caches rated (their share at most), units the rest
    edge   network = lanes / density, memory = wires / density, at most what is left of the unit's
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .data import Technology
from .design import AreaShares, Budget, EdgeShares, room_of
from .engine import memory_watts
from .speeds import rated_bank_bytes_per_s

# What is counted in whole parts has a hair more room than these take.
_HAIR = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What is chosen of a chip, as numbers or one number a chip of a table.

    Attributes:
        area_mm2: silicon of all dies.
        power_w: of the package.
        num_stacks: of memory, of one device.
        memory_speed: of the wires of memory, over the rated one.
        num_lanes: to other packages, of one device, at their rated speed.
        core_share: part of the silicon that is left over which units take; the rest stays dark.
    """

    area_mm2: Num
    power_w: Num
    num_stacks: Num
    memory_speed: Num
    num_lanes: Num
    core_share: Num


def shared_out(limit: Budget, knobs: Knobs, technology: Technology) -> Budget:
    """Return the budget whose shares are what the parts need; where they need too much, units have a share below zero.

    `limit` says what all else is made of.
    """
    budget = replace(
        limit, area_mm2=knobs.area_mm2, power_w=knobs.power_w, num_stacks=knobs.num_stacks * limit.num_ranks
    )
    unit, memory, link = technology.unit(limit.unit), technology.memory(limit.memory), technology.link(limit.link)
    scale = technology.scale(unit.node, limit.node)
    room = room_of(budget, technology)
    cache = unit.area_shares.cache.si
    area = AreaShares(
        core=0.0,
        cache=cache,
        memory=knobs.num_stacks * memory.controller.si * scale.analog / room.area_mm2 * _HAIR,
        network=knobs.num_lanes * link.area.si * scale.analog / room.area_mm2 * _HAIR,
    )
    lanes_mm = knobs.num_lanes / link.density.si * _HAIR
    wires = knobs.num_stacks * int(memory.links.si)
    wires_mm = np.minimum(wires / memory.density.si * _HAIR, unit.edge_shares.total * room.edge_mm - lanes_mm)
    rest_w, rated_w = memory_watts(memory, knobs.num_stacks, np.minimum(wires, np.floor(wires_mm * memory.density.si)))
    banks = np.floor(cache * room.area_mm2 / (unit.cache.area.si * scale.cache))
    bank_w = unit.cache.leakage.si * unit.cache.bank.si
    bank_w += rated_bank_bytes_per_s(unit) * unit.cache.energy.si * scale.power
    power = AreaShares(
        core=0.0,
        cache=np.minimum(banks * bank_w / room.power_w, unit.power_shares.cache.si),
        memory=(rest_w + knobs.memory_speed * rated_w) / room.power_w,
        network=2 * knobs.num_lanes * link.rate.si * link.energy.si / room.power_w,
    )
    return replace(
        budget,
        area_shares=replace(area, core=(unit.area_shares.total - area.total) * knobs.core_share),
        power_shares=replace(power, core=1.0 - power.total),
        edge_shares=EdgeShares(wires_mm / room.edge_mm, lanes_mm / room.edge_mm),
    )


def most_stacks(budget: Budget, technology: Technology) -> float:
    """Return how many stacks fit beside the dies of one device and on its edge's share of the silicon, one at least."""
    unit, kind, room = technology.unit(budget.unit), technology.memory(budget.memory), room_of(budget, technology)
    beside = (unit.package.si - 1.0) * budget.area_mm2 / budget.num_ranks / kind.beside_mm2
    scale = technology.scale(unit.node, budget.node).analog
    on_die = (unit.area_shares.total - unit.area_shares.cache.si) * room.area_mm2 / (kind.controller.si * scale)
    return max(float(np.min(np.floor(np.minimum(beside, on_die)))), 1.0)


def most_lanes(budget: Budget, technology: Technology) -> float:
    """Return how many lanes have room on the edge and the silicon of one device, one at least."""
    unit, kind, room = technology.unit(budget.unit), technology.link(budget.link), room_of(budget, technology)
    scale = technology.scale(unit.node, budget.node).analog
    on_die = (unit.area_shares.total - unit.area_shares.cache.si) * room.area_mm2 / (kind.area.si * scale)
    return max(
        float(np.min(np.floor(np.minimum(on_die, unit.edge_shares.total * room.edge_mm * kind.density.si)))), 1.0
    )
