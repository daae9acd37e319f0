"""The energy of a step: packages by what they do, hosts, network, and the building around them.

    packages  P_idle n t + what the step does (see `activity`), at most P n t;   or P n t times a load
    hosts     host load x the most that servers and racks draw beside packages;   network  switches and optics
    building  (PUE - 1) of all these

n are the accelerators, t is the time of the step, P the power of a package. Each lies between the part / f and the part
x f, packages at most at P n t: f is how far the energy of its level may be off, of one H100 by its own readings, of
other logic by the law of nodes, of links, rest and hosts by what other sources say. All are off the same way; times are
as given.
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
from .activity import BEYOND, Activity, idle_w
from .levels import LAW_MISSES
from .server import watts_of
from .system import SystemCost
from .tco import pue_of
from .wires import wires_of

# Parts that every accelerator of a server draws, and parts that none does; others are of those that compute.
_OF_ALL, _BESIDE = ("idle", "packages"), ("hosts", "network")
# fp16 over bf16 of the same H100, of products that are the same to its units: tests/data/h100_power.csv.
READINGS_DIFFER = 0.84 / 0.81
# HBM3: 3.9 pJ/bit of the technology's data over 24 pJ/B of Chiplet Cloud.
MEMORIES_DIFFER = 3.9 * 8 / 24
# The design of the chip that was measured.
_MEASURED = "hopper"


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Joules of a step of the whole system.

    Attributes:
        parts_j: by what takes them, machines only: `idle` and what packages do, or `packages`; `hosts`, `network`.
        building_j: what the building adds: cooling and losses.
        time_s: of the step.
        num_gpus: accelerators that compute.
        num_bought: these and those that a plan leaves idle in their servers.
    """

    parts_j: Mapping[str, Num]
    building_j: Num
    time_s: Num
    num_gpus: Num
    num_bought: Num

    @property
    def machines_j(self) -> Num:
        """All machines, without the building."""
        return sum(self.parts_j.values(), start=0.0)

    @property
    def total_j(self) -> Num:
        """Machines and building."""
        return self.machines_j + self.building_j

    @property
    def average_w(self) -> Num:
        """What the machines draw on average over the step."""
        return self.machines_j / self.time_s

    @property
    def rest_j(self) -> Num:
        """What every accelerator that was bought draws alike."""
        return sum((self.parts_j.get(name, 0.0) for name in _OF_ALL), start=0.0)

    @property
    def active_j(self) -> Num:
        """What those that compute draw on top."""
        return sum((part for name, part in self.parts_j.items() if name not in (*_OF_ALL, *_BESIDE)), start=0.0)

    @property
    def gpu_w(self) -> Num:
        """What one accelerator that computes draws on average, without hosts and network: what its own sensor reads."""
        return (self.rest_j / self.num_bought + self.active_j / self.num_gpus) / self.time_s


def step_energy(
    cost: SystemCost, system: System, prices: Prices, step_time_s: Num, doing: Activity | None = None
) -> StepEnergy:
    """Return the energy of a step on a system that was priced.

    Args:
        cost: of the system: how much of everything there is, and what it draws.
        system: its chip.
        prices: `energy` and the PUE of `facility`.
        step_time_s: of a step.
        doing: what the step does; without it, or by the model `design_power`, packages draw theirs times the load.
    """
    by_activity = doing is not None and prices.section.energy.power_model == "activity"
    parts = _active(doing, cost, system, prices, step_time_s) if doing is not None and by_activity else {}
    parts = parts or {
        "packages": (_packages(cost, system) * watts_of(system.chip) * prices.section.energy.average_load.si)
        * step_time_s
    }
    load = prices.section.energy.average_load.si
    hosts_w = cost.servers.power_w - _packages(cost, system) * watts_of(system.chip)
    of_hosts = prices.section.energy.host_load.si if by_activity else load
    parts = {**parts, "hosts": hosts_w * of_hosts * step_time_s, "network": cost.network.power_w * load * step_time_s}
    machines_j = sum(parts.values(), start=0.0)
    building_j = machines_j * (pue_of(prices, cost.estate.cooling) - 1.0)
    return StepEnergy(parts, building_j, step_time_s, cost.num_gpus, _packages(cost, system))


def _packages(cost: SystemCost, system: System) -> Num:
    """Ranks of all servers, those that a plan leaves idle as well."""
    return cost.num_servers * system.node_size


def _active(doing: Activity, cost: SystemCost, system: System, prices: Prices, step_time_s: Num) -> Mapping[str, Num]:
    """Power at rest and what a step does, held to what the packages that compute may draw in all."""
    at_rest_j = _packages(cost, system) * idle_w(system, prices) * step_time_s
    room_j = cost.num_gpus * (watts_of(system.chip) - idle_w(system, prices)) * step_time_s
    # What goes over wires is drawn by packages too: the part `network` is that of switches and optics.
    active = {("wires" if part == "network" else part): joules for part, joules in doing.parts_j.items()}
    over_j = np.minimum(room_j - doing.total_j, 0.0)
    if BEYOND in active or np.any(over_j):
        active[BEYOND] = active.get(BEYOND, 0.0) + over_j
    return {"idle": at_rest_j, **active}


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
