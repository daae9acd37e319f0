"""Budgets of area, power and perimeter into what a chip has: the equations of the technology engine.

After DeepFlow (Ardalani et al. 2022), as published in its source. Ours: only whole multiprocessors count, a voltage has
a maximum, and below its least voltage a circuit keeps to its power budget (see `voltage.Clamp`).

All of it computes on numbers and arrays alike. Where a budget has no room for even one of a part, `fit` says why and
the numbers mean nothing.
"""

from __future__ import annotations

import math

import numpy as np

from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .files.schema import CacheSection, LinkSection, MemorySection, UnitSection
from .fits import Fit, Reason, check
from .voltage import Clamp, Operation, operate

# Keeps what has no room computable; `fit` says that it means nothing.
_LEAST = 1e-300


@dataclass(frozen=True, slots=True)
class Share:
    """What a part of a chip may take: silicon, power, and edge of the dies."""

    area_mm2: Num
    power_w: Num
    edge_mm: Num = math.inf


@dataclass(frozen=True, slots=True)
class Compute:
    """Units of compute, in whole multiprocessors, and where they run."""

    num_sms: Num
    num_units: Num
    at: Operation
    clock_hz: Num
    flop_per_s: Num
    power_w: Num
    area_mm2: Num
    fit: Fit


@dataclass(frozen=True, slots=True)
class Cache:
    """Banks of memory on the die."""

    num_banks: Num
    num_bytes: Num
    bytes_per_s: Num
    power_w: Num
    area_mm2: Num
    fit: Fit


@dataclass(frozen=True, slots=True)
class Memory:
    """Stacks of memory beside the die; the area is that of their controllers and pads on it."""

    num_stacks: Num
    num_links: Num
    num_bytes: Num
    bytes_per_s: Num
    speed: Num
    j_per_byte: Num
    power_w: Num
    area_mm2: Num
    fit: Fit


@dataclass(frozen=True, slots=True)
class Network:
    """Lanes to other chips; the bandwidth is of all together, one direction."""

    num_lanes: Num
    bytes_per_s: Num
    at: Operation
    j_per_byte: Num
    power_w: Num
    area_mm2: Num
    fit: Fit


def compute(share: Share, unit: UnitSection, shrink: float, power_scale: float, clamp: Clamp = "budget") -> Compute:
    """Fill an area with units and run them on a power.

    n = m floor(A / (m A_unit)) for m units a multiprocessor, V from P / (n P_unit), f = speed f0, peak = n F f.

    `shrink` and `power_scale` are what is left of the area and power of a unit on the node.
    """
    per_sm = int(unit.per_sm.si)
    sm_mm2 = per_sm * unit.area.si * shrink
    num_sms, fit = _whole(Reason.MULTIPROCESSOR, share.area_mm2, sm_mm2)
    num_units = num_sms * per_sm
    nominal_w = num_units * unit.power.si * power_scale
    at = operate(unit.voltage.law, share.power_w / nominal_w, clamp)
    clock_hz = unit.clock.si * at.speed
    flop_per_s = num_units * unit.flop_per_clock.si * clock_hz
    return Compute(num_sms, num_units, at, clock_hz, flop_per_s, at.power * nominal_w, num_sms * sm_mm2, fit)


def cache(share: Share, bank: CacheSection, shrink: float, power_scale: float) -> Cache:
    """Fill an area with banks; the power that they do not leak moves data.

    capacity = floor(A / A_bank) bank, BW = (P - leakage capacity) / energy per byte.
    """
    bank_mm2 = bank.area.si * shrink
    num_banks, room = _whole(Reason.CACHE, share.area_mm2, bank_mm2)
    num_bytes = num_banks * bank.bank.si
    moving_w, power = _left(Reason.CACHE_POWER, share.power_w, bank.leakage.si * num_bytes)
    bytes_per_s = moving_w / (bank.energy.si * power_scale)
    return Cache(num_banks, num_bytes, bytes_per_s, share.power_w, num_banks * bank_mm2, room.then(power))


def memory(
    share: Share,
    kind: MemorySection,
    beside_mm2: Num,
    shrink: float,
    num_stacks: Num | None = None,
    clamp: Clamp = "budget",
) -> Memory:
    """Put stacks beside the die, as many as fit there and have their controllers on it, and run their wires on a power.

    stacks = min(floor(A_beside / A_stack), floor(A / A_controller)), links = min(edge density, stacks links a stack),
    speed = (P - leakage capacity) / (links energy rate), one at most, BW = links rate speed.

    A bit takes the energy of its kind at any rate: the supply of a memory is given. DeepFlow lowers it (`paper`).
    `num_stacks` puts so many there instead, and no more than fit.
    """
    controller_mm2 = kind.controller.si * shrink
    beside, place = _whole(Reason.STACK, beside_mm2, kind.beside_mm2)
    on_die, room = _whole(Reason.CONTROLLER, share.area_mm2, controller_mm2)
    most = np.minimum(beside, on_die)
    stacks = most if num_stacks is None else num_stacks
    asked = check(np.less_equal(stacks, most), Reason.STACKS, most, stacks)
    wires, edge = _wires(Reason.MEMORY_WIRES, share.edge_mm, kind.density.si)
    num_links = np.minimum(wires, stacks * int(kind.links.si))
    num_bytes = stacks * kind.capacity.si
    resting_w, rated_w = memory_watts(kind, stacks, num_links)
    moving_w, power = _left(Reason.MEMORY_POWER, share.power_w, resting_w)
    given = moving_w / rated_w
    used = np.minimum(given, 1.0)
    speed = used if clamp == "budget" else operate(kind.voltage.law, given).speed
    return Memory(
        num_stacks=stacks,
        num_links=num_links,
        num_bytes=num_bytes,
        bytes_per_s=num_links * kind.rate.si * speed,
        speed=speed,
        j_per_byte=used * rated_w / (num_links * kind.rate.si * speed),
        power_w=resting_w + used * rated_w,
        area_mm2=stacks * controller_mm2,
        fit=place.then(room, asked, edge, power),
    )


def memory_watts(kind: MemorySection, num_stacks: Num, num_links: Num) -> tuple[Num, Num]:
    """Return what stacks draw at rest, and what their wires draw on top at their rated speed: links rate energy."""
    return kind.leakage.si * num_stacks * kind.capacity.si, num_links * kind.rate.si * kind.design_j_per_byte


def network(share: Share, lane: LinkSection, shrink: float) -> Network:
    """Put lanes on an area and an edge, and run them on a power; a lane sends and receives.

    lanes = min(floor(A / A_lane), edge density), V from P / (2 lanes energy rate), BW = lanes rate speed.
    """
    lane_mm2 = lane.area.si * shrink
    on_die, room = _whole(Reason.LANE, share.area_mm2, lane_mm2)
    wires, edge = _wires(Reason.LANE_WIRES, share.edge_mm, lane.density.si)
    num_lanes = np.minimum(on_die, wires)
    nominal_w = 2 * num_lanes * lane.rate.si * lane.energy.si
    at = operate(lane.voltage.law, share.power_w / nominal_w)
    bytes_per_s = num_lanes * lane.rate.si * at.speed
    joules = lane.energy.si * at.power / at.speed
    return Network(num_lanes, bytes_per_s, at, joules, at.power * nominal_w, num_lanes * lane_mm2, room.then(edge))


def _whole(reason: Reason, given_mm2: Num, one_mm2: float) -> tuple[Num, Fit]:
    """How many fit; a hair below a whole number is that number, which divisions of round figures miss."""
    number = np.floor(given_mm2 / one_mm2 * (1 + 1e-12))
    return np.maximum(number, 1.0), check(number >= 1, reason, given_mm2, one_mm2)


def _wires(reason: Reason, edge_mm: Num, density: float) -> tuple[Num, Fit]:
    number = np.floor(edge_mm * density)
    return np.maximum(number, 1.0), check(number >= 1, reason, edge_mm, density)


def _left(reason: Reason, given_w: Num, taken_w: Num) -> tuple[Num, Fit]:
    left = given_w - taken_w
    return np.maximum(left, _LEAST), check(np.greater(given_w, taken_w), reason, given_w, taken_w)
