"""Machines that place and bond: what a second of them costs, and how long they are needed."""

from __future__ import annotations

import numpy as np

from ....backends.prices.silicon_schema import MachinePrices, ProcessPrices
from ....ir.sizes.expr import Num


def second_usd(machine_usd: float, machines: MachinePrices) -> float:
    """C = (machine / life + technician) / uptime: each second in use pays for those that are not.

    The tool that this is after (CATCH) multiplies by the uptime.
    """
    return (machine_usd / machines.life.si + machines.technician.si) / machines.uptime.si


def machine_usd(pieces: Num, process: ProcessPrices, machines: MachinePrices, one_by_one: bool = False) -> Num:
    """C = c_place t_place ceil(n / g_place) + c_bond t_bond ceil(n / g_bond), without materials."""
    place_group = 1.0 if one_by_one else process.pick_place_group.si
    bond_group = 1.0 if one_by_one else process.bonding_group.si
    place = second_usd(process.pick_place_machine.si, machines) * machines.pick_place_time.si
    bond = second_usd(process.bonding_machine.si, machines) * machines.bonding_time.si
    return place * np.ceil(np.divide(pieces, place_group)) + bond * np.ceil(np.divide(pieces, bond_group))
