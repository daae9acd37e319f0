"""How fast the parts of a chip run, over the speeds that they are rated for.

matrix and vector units: clock over that of the unit      memory: bytes/s over those of its stacks at their rate
caches: bytes/s over banks times those of a bank of the unit's own chip      links: bytes/s over lanes at their rate
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.sizes.expr import Num
from .data import Technology
from .design import Design
from .files.schema import UnitSection

PARTS = ("matrix", "vector", "caches", "memory", "links")


def rated_speeds(design: Design, technology: Technology) -> Mapping[str, Num]:
    """Return the part of its rated speed that each component runs at; above one where a circuit is driven beyond it."""
    budget, unit = design.budget, technology.unit(design.budget.unit)
    memory, link = technology.memory(budget.memory), technology.link(budget.link)
    clock = design.compute.clock_hz / unit.clock.si
    stacks_bytes_per_s = design.memory.num_stacks * int(memory.links.si) * memory.rate.si
    return {
        "matrix": clock,
        "vector": clock,
        "caches": design.cache.bytes_per_s / (design.cache.num_banks * rated_bank_bytes_per_s(unit)),
        "memory": design.memory.bytes_per_s / stacks_bytes_per_s,
        "links": design.network.bytes_per_s / (design.network.num_lanes * link.rate.si),
    }


def rated_bank_bytes_per_s(unit: UnitSection) -> float:
    """Return what a bank of cache moves on the chip that a unit is from: (P / banks - leakage) / energy of a byte.

    Of that chip, each unit has its share of the area and power: A = A_unit / share of the units, P likewise.

    >>> from .data import load_technology
    >>> round(rated_bank_bytes_per_s(load_technology().unit("h100")) / 1e9)
    176
    """
    bank = unit.cache
    banks = unit.area.si / unit.area_shares.core.si * unit.area_shares.cache.si / bank.area.si
    power_w = unit.power.si / unit.power_shares.core.si * unit.power_shares.cache.si
    return float((power_w / banks - bank.leakage.si * bank.bank.si) / bank.energy.si)


def speeds_text(design: Design, technology: Technology) -> str:
    """Say at which part of its rated speed each component of one chip runs."""
    return ", ".join(f"{part} {float(speed):.0%}" for part, speed in rated_speeds(design, technology).items())
