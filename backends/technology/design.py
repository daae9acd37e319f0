"""A whole chip from budgets, and what it is as a chip of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.errors import UsageError
from . import engine
from .data import Technology
from .engine import Cache, Compute, Memory, Network, Share
from .schema import UnitSection
from .voltage import Clamp


@dataclass(frozen=True, slots=True)
class Budget:
    """What a chip may take, and of what it is made.

    Attributes:
        node: technology node of the dies.
        area_mm2: silicon of all dies together.
        power_w: of the whole package.
        unit: unit of compute, whose floor plan shares the budgets out.
        memory: kind of the stacks beside the dies.
        link: kind of the lanes to other chips.
        num_dies: how many dies make up the area; more have more edge.
        clamp: what a circuit does below its least voltage.
    """

    node: str
    area_mm2: float
    power_w: float
    unit: str = "h100"
    memory: str = "hbm3"
    link: str = "nvlink4"
    num_dies: int = 1
    clamp: Clamp = "budget"

    @property
    def edge_mm(self) -> float:
        """Perimeter of the dies, which are square: 4 sqrt(area of one), each."""
        return self.num_dies * 4 * math.sqrt(self.area_mm2 / self.num_dies)


@dataclass(frozen=True, slots=True)
class Design:
    """A chip made from a budget."""

    budget: Budget
    compute: Compute
    cache: Cache
    memory: Memory
    network: Network
    vector_flop_per_s: float
    rates: tuple[tuple[str, float], ...]

    @property
    def peaks(self) -> tuple[tuple[str, float], ...]:
        """Peaks in FLOP/s by dtype; fp32 runs outside of the units."""
        flop_per_s = self.compute.flop_per_s
        others = ((dtype, flop_per_s * rate) for dtype, rate in self.rates)
        return (("fp16", flop_per_s), *others, ("fp32", self.vector_flop_per_s))

    @property
    def used_w(self) -> float:
        """Power of the parts that the engine builds."""
        return self.compute.power_w + self.cache.power_w + self.memory.power_w + self.network.power_w


def design(budget: Budget, technology: Technology) -> Design:
    """Build a chip.

    UsageError where a budget has no room for even one of a part, or is no budget; UnknownNameError for names.
    """
    _check(budget)
    unit = technology.unit(budget.unit)
    scale = technology.scale(unit.node, budget.node)
    core, cached, stacked, linked = _shares(budget, unit)
    made = engine.compute(core, unit, scale.logic, scale.power, budget.clamp)
    beside_mm2 = (unit.package.si - 1.0) * budget.area_mm2
    return Design(
        budget,
        made,
        engine.cache(cached, unit.cache, scale.cache, scale.power),
        engine.memory(stacked, technology.memory(budget.memory), beside_mm2, scale.analog),
        engine.network(linked, technology.link(budget.link), scale.analog),
        made.num_sms * unit.vector_flop_per_clock.si * made.clock_hz,
        tuple((dtype, rate.si) for dtype, rate in unit.rates.items()),
    )


def study(budget: Budget, technology: Technology, nodes: Sequence[str] = ()) -> tuple[Design, ...]:
    """Build the same budgets on several nodes, all of them by default: equal area and equal power."""
    return tuple(design(replace(budget, node=n), technology) for n in nodes or technology.node_names)


def _check(budget: Budget) -> None:
    if not (0 < budget.area_mm2 < math.inf and 0 < budget.power_w < math.inf):
        raise UsageError(f"a chip needs area and power: given {budget.area_mm2:g} mm2 and {budget.power_w:g} W")
    if budget.num_dies < 1:
        raise UsageError(f"a chip needs a die: given {budget.num_dies}")


def _shares(budget: Budget, unit: UnitSection) -> tuple[Share, Share, Share, Share]:
    area, power, edge = unit.area_shares, unit.power_shares, unit.edge_shares
    a, p, e = budget.area_mm2, budget.power_w, budget.edge_mm
    return (
        Share(a * area.core.si, p * power.core.si),
        Share(a * area.cache.si, p * power.cache.si),
        Share(a * area.memory.si, p * power.memory.si, e * edge.memory.si),
        Share(a * area.network.si, p * power.network.si, e * edge.network.si),
    )
