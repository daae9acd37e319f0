"""Who owns the budgets of a chip: area, power and edge of each part of one device.

Power is rate x joules + leakage. A FLOP takes that of a unit at its nominal voltage, times the power of the node, times
(V / V0)^2; a byte of a cache that of its bank times the power of the node, one of memory that of its kind at any rate,
one of a lane that of its kind times (V / V0)^2.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.records import dataclass
from ...ir.units import format_si
from .data import Technology
from .design import Design
from .speeds import rated_speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a part of one device takes.

    Attributes:
        part: its name.
        area_mm2: silicon.
        edge_mm: of the dies.
        rate: FLOP/s or B/s at which it runs.
        unit: of what the rate counts.
        joules: of one of these.
        rest_w: what it draws whatever it does.
        speed: the rate over the rated one.
    """

    part: str
    area_mm2: float
    edge_mm: float = 0.0
    rate: float = 0.0
    unit: str = "B"
    joules: float = 0.0
    rest_w: float = 0.0
    speed: float = 1.0

    @property
    def power_w(self) -> float:
        """Return rate x joules + what it draws at rest."""
        return self.rate * self.joules + self.rest_w

    @property
    def reason(self) -> str:
        """Say the power as it is worked out."""
        rest = f" + {self.rest_w:.4g} W of leakage" if self.rest_w else ""
        return f"{format_si(self.rate, self.unit)}/s x {self.joules * 1e12:.4g} pJ/{self.unit}{rest}"


def claims_of(design: Design, technology: Technology) -> tuple[Claim, ...]:
    """Return the claims of the parts of one device, of one design; their areas, powers and edges are within its own."""
    return tuple(_claims(design, technology))


def _claims(design: Design, technology: Technology) -> Iterator[Claim]:
    b, core, cache, memory, lanes = design.budget, design.compute, design.cache, design.memory, design.network
    unit, kind, link = technology.unit(b.unit), technology.memory(b.memory), technology.link(b.link)
    node = technology.scale(unit.node, b.node).power
    speeds = {part: float(speed) for part, speed in rated_speeds(design, technology).items()}
    nominal_j = unit.power.si / (unit.flop_per_clock.si * unit.clock.si)
    yield Claim(
        part="units",
        area_mm2=float(core.area_mm2),
        rate=float(core.flop_per_s),
        unit="FLOP",
        joules=float(nominal_j * node * core.at.power / core.at.speed),
        speed=speeds["matrix"],
    )
    yield Claim(
        part="caches",
        area_mm2=float(cache.area_mm2),
        rate=float(cache.bytes_per_s),
        joules=unit.cache.energy.si * node,
        rest_w=float(unit.cache.leakage.si * cache.num_bytes),
        speed=speeds["caches"],
    )
    resting_w = float(kind.leakage.si * memory.num_bytes)
    yield Claim(
        part="memory",
        area_mm2=float(memory.area_mm2),
        edge_mm=float(memory.num_links / kind.density.si),
        rate=float(memory.bytes_per_s),
        joules=float(memory.j_per_byte),
        rest_w=resting_w,
        speed=speeds["memory"],
    )
    yield Claim(
        part="links",
        area_mm2=float(lanes.area_mm2),
        edge_mm=float(lanes.num_lanes / link.density.si),
        rate=2 * float(lanes.bytes_per_s),
        joules=float(lanes.j_per_byte),
        speed=speeds["links"],
    )
    if b.d2d:
        between = design.interface
        rate = float(between.power_w / technology.d2d(b.d2d).energy_j_per_byte)
        yield Claim(
            part="d2d",
            area_mm2=float(between.area_mm2),
            edge_mm=float(between.edge_mm),
            rate=rate,
            joules=technology.d2d(b.d2d).energy_j_per_byte,
        )
