"""Between which joules a step lies, as far as the energies of a machine's levels are known.

    sum of part / f .. sum of part x f, packages at most P n t

f is how far the energy of the part's level may be off: of one H100 by its own readings, of other logic by the law of
nodes, of links, rest and hosts by what other sources say. All are taken to be off the same way; times are as given.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...backends.machine.chip import ChipEnergy
from ...backends.machine.files.number import Number
from ...backends.machine.system import System
from ...backends.prices.section import Prices
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .activity import BEYOND, idle_w
from .energy import StepEnergy
from .levels import LAW_MISSES
from .server import watts_of
from .wires import wires_of

# fp16 over bf16 of the same H100, of products that are the same to its units: tests/data/h100_power.csv.
READINGS_DIFFER = 0.84 / 0.81
# HBM3: 3.9 pJ/bit of the technology's data over 24 pJ/B of Chiplet Cloud.
MEMORIES_DIFFER = 3.9 * 8 / 24
# The design of the chip that was measured.
_MEASURED = "hopper"


@dataclass(frozen=True, slots=True)
class JoulesInterval:
    """Joules of the machines over a step at both ends of what is known, and the factors of each part.

    Attributes:
        low_j: at the low ends.
        high_j: at the high ends, and no more than packages may draw.
        factors: of the parts of a step, the low and the high one.
    """

    low_j: Num
    high_j: Num
    factors: Mapping[str, tuple[float, float]]


def joules_interval(energy: StepEnergy, system: System, prices: Prices) -> JoulesInterval:
    """Return the joules of a step of all machines between the ends of their constants."""
    factors = level_factors(system, prices)
    idle, doing = (idle_w(system, prices), watts_of(system.chip))
    room_j = (energy.num_bought * idle + energy.num_gpus * (doing - idle)) * energy.time_s
    beside = ("hosts", "network", "packages")
    low, high = (
        {name: joules * factors.get(name, (1.0, 1.0))[end] for name, joules in energy.parts_j.items() if name != BEYOND}
        for end in (0, 1)
    )
    over_j = energy.parts_j.get(BEYOND, 0.0)
    drawn = {name: joules for name, joules in energy.parts_j.items() if name not in beside}
    least_j = np.minimum(_sum(low, beside), sum(drawn.values(), start=0.0))
    most_j = np.maximum(np.minimum(_sum(high, beside) + over_j, room_j), sum(drawn.values(), start=0.0))
    return JoulesInterval(
        low_j=least_j + sum(low.get(name, 0.0) for name in beside),
        high_j=most_j + sum(high.get(name, 0.0) for name in beside),
        factors={name: factors[name] for name in energy.parts_j if name in factors},
    )


def level_factors(system: System, prices: Prices) -> Mapping[str, tuple[float, float]]:
    """Return how far each part of the joules of a step may be off, as factors of its low and its high end."""
    chip, section = system.chip, prices.section.energy
    own = chip.energy or ChipEnergy()
    measured = chip.design == _MEASURED and own.logic is None
    links = [section.links[one.kind] for one in wires_of(system, section).links if one.path.startswith("prices.")]
    ends = [_ends(link) for link in links] or [(1.0, 1.0)]
    return {
        "idle": _about(READINGS_DIFFER) if measured else _ends(section.idle_share),
        "matrix units": _about(READINGS_DIFFER if measured or own.matmul_j_per_flop is not None else LAW_MISSES),
        "vector units": _about(LAW_MISSES),
        "memory": _about(READINGS_DIFFER if measured else MEMORIES_DIFFER),
        "cache": _about(READINGS_DIFFER if measured else LAW_MISSES),
        "wires": (min(low for low, _ in ends), max(high for _, high in ends)),
        "hosts": _ends(section.host_load),
    }


def _sum(parts: Mapping[str, Num], beside: tuple[str, ...]) -> Num:
    return sum((joules for name, joules in parts.items() if name not in beside), start=0.0)


def _about(factor: float) -> tuple[float, float]:
    return 1.0 / factor, factor


def _ends(number: Number) -> tuple[float, float]:
    """The least and the most that any source says, over the number."""
    told = [number.si, *(record.value_si for record in number.records_of_others(""))]
    return min(told) / number.si, max(told) / number.si
