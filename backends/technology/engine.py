"""Budgets of area, power and perimeter into what a chip has: the equations of the technology engine.

After DeepFlow (Ardalani et al. 2022), as published in its source. Ours: only whole multiprocessors count, a voltage has
a maximum, and below its least voltage a circuit keeps to its power budget (see `voltage.Clamp`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.errors import UsageError
from .schema import CacheSection, LinkSection, MemorySection, UnitSection
from .voltage import Clamp, Operation, operate


@dataclass(frozen=True, slots=True)
class Share:
    """What a part of a chip may take: silicon, power, and edge of the dies."""

    area_mm2: float
    power_w: float
    edge_mm: float = math.inf


@dataclass(frozen=True, slots=True)
class Compute:
    """Units of compute, in whole multiprocessors, and where they run."""

    num_sms: int
    num_units: int
    at: Operation
    clock_hz: float
    flop_per_s: float
    power_w: float


@dataclass(frozen=True, slots=True)
class Cache:
    """Banks of memory on the die."""

    num_banks: int
    num_bytes: float
    bytes_per_s: float
    power_w: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Stacks of memory beside the die."""

    num_stacks: int
    num_links: int
    num_bytes: float
    bytes_per_s: float
    at: Operation
    power_w: float


@dataclass(frozen=True, slots=True)
class Network:
    """Lanes to other chips; the bandwidth is of all together, one direction."""

    num_lanes: int
    bytes_per_s: float
    at: Operation
    power_w: float


def compute(share: Share, unit: UnitSection, shrink: float, power_scale: float, clamp: Clamp = "budget") -> Compute:
    """Fill an area with units and run them on a power.

    n = m floor(A / (m A_unit)) for m units a multiprocessor, V from P / (n P_unit), f = speed f0, peak = n F f.

    `shrink` and `power_scale` are what is left of the area and power of a unit on the node.
    """
    per_sm = int(unit.per_sm.si)
    num_sms = _whole("a multiprocessor", share.area_mm2, per_sm * unit.area.si * shrink)
    num_units = num_sms * per_sm
    nominal_w = num_units * unit.power.si * power_scale
    at = operate(unit.voltage.law, share.power_w / nominal_w, clamp)
    clock_hz = unit.clock.si * at.speed
    return Compute(
        num_sms, num_units, at, clock_hz, num_units * unit.flop_per_clock.si * clock_hz, at.power * nominal_w
    )


def cache(share: Share, bank: CacheSection, shrink: float, power_scale: float) -> Cache:
    """Fill an area with banks; the power that they do not leak moves data.

    capacity = floor(A / A_bank) bank, BW = (P - leakage capacity) / energy per byte.
    """
    num_banks = _whole("a bank of cache", share.area_mm2, bank.area.si * shrink)
    num_bytes = num_banks * bank.bank.si
    moving_w = _left("cache", share.power_w, bank.leakage.si * num_bytes)
    return Cache(num_banks, num_bytes, moving_w / (bank.energy.si * power_scale), share.power_w)


def memory(share: Share, kind: MemorySection, beside_mm2: float, shrink: float) -> Memory:
    """Put stacks beside the die, as many as fit there and have their controllers on it, and run their wires on a power.

    stacks = min(floor(A_beside / A_stack), floor(A / A_controller)), links = min(edge density, stacks links a stack),
    V from (P - leakage capacity) / (links energy rate), BW = links rate speed.
    """
    num_stacks = min(
        _whole("a stack of memory beside the die", beside_mm2, kind.footprint.si),
        _whole("a controller of memory on the die", share.area_mm2, kind.controller.si * shrink),
    )
    num_links = min(_wires(share.edge_mm, kind.density.si), num_stacks * int(kind.links.si))
    num_bytes = num_stacks * kind.capacity.si
    resting_w = kind.leakage.si * num_bytes
    moving_w = _left("memory", share.power_w, resting_w)
    nominal_w = num_links * kind.rate.si * kind.energy.si
    at = operate(kind.voltage.law, moving_w / nominal_w)
    return Memory(
        num_stacks,
        num_links,
        num_bytes,
        num_links * kind.rate.si * at.speed,
        at,
        resting_w + at.power * nominal_w,
    )


def network(share: Share, lane: LinkSection, shrink: float) -> Network:
    """Put lanes on an area and an edge, and run them on a power; a lane sends and receives.

    lanes = min(floor(A / A_lane), edge density), V from P / (2 lanes energy rate), BW = lanes rate speed.
    """
    num_lanes = min(
        _whole("a lane", share.area_mm2, lane.area.si * shrink),
        _wires(share.edge_mm, lane.density.si),
    )
    nominal_w = 2 * num_lanes * lane.rate.si * lane.energy.si
    at = operate(lane.voltage.law, share.power_w / nominal_w)
    return Network(num_lanes, num_lanes * lane.rate.si * at.speed, at, at.power * nominal_w)


def _whole(what: str, given_mm2: float, one_mm2: float) -> int:
    """How many fit; a hair below a whole number is that number, which divisions of round figures miss."""
    number = math.floor(given_mm2 / one_mm2 * (1 + 1e-12))
    if number < 1:
        raise UsageError(f"no room for {what}: {given_mm2:.3g} mm2 of its budget, and one takes {one_mm2:.3g} mm2")
    return number


def _wires(edge_mm: float, density: float) -> int:
    number = math.floor(edge_mm * density) if math.isfinite(edge_mm) else 2**31
    if number < 1:
        raise UsageError(f"no wire leaves the die: {edge_mm:.3g} mm of edge take {density:.3g} a millimetre")
    return number


def _left(what: str, given_w: float, taken_w: float) -> float:
    if given_w <= taken_w:
        raise UsageError(
            f"no power left to use the {what}: {given_w:.3g} W of its budget, at rest it takes {taken_w:.3g} W"
        )
    return given_w - taken_w
