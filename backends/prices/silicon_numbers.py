"""The leaves of the price book that only silicon has: densities, currents, rates, cycles and sizes of memories."""

from __future__ import annotations

from .numbers import Quoted


class Density(Quoted):
    """Things in an area, as 138.2e6 1/mm2 of transistors."""

    dimension = "1/mm2"
    zero_allowed = True
    sane = (1e-6, 1e12)


class CurrentDensity(Quoted):
    """Current that a pad takes, as 100 A/mm2."""

    dimension = "A/mm2"
    sane = (1e-3, 1e7)


class Rate(Quoted):
    """Bytes per second, one direction."""

    dimension = "B/s"
    sane = (1e6, 1e17)


class Capacity(Quoted):
    """An amount of memory."""

    dimension = "B"
    sane = (1e6, 1e14)


class AreaPerByte(Quoted):
    """Silicon that memory takes, as 0.45 mm2/MB."""

    dimension = "mm2/B"
    sane = (1e-12, 1.0)


class Cycle(Quoted):
    """A clock's cycle, as 100 ns."""

    dimension = "s"
    sane = (1e-12, 1.0)


class PowerDensity(Quoted):
    """Power of an area, as 0.86 W/mm2."""

    dimension = "W/mm2"
    sane = (1e-4, 1e3)


class Voltage(Quoted):
    """A supply."""

    dimension = "V"
    sane = (0.01, 10.0)
