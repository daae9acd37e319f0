"""The leaves of the data of the technology engine: numbers of circuits, pads and packages."""

from __future__ import annotations

from ...machine.files.system_numbers import Number


class Gain(Number):
    """How much better than on the node before; one is as good."""

    sane = (0.1, 10.0)


class Area(Number):
    """An area of silicon or package."""

    dimension = "mm2"
    sane = (1e-6, 1e6)


class Voltage(Number):
    """A voltage."""

    dimension = "V"
    sane = (0.01, 10.0)


class Energy(Number):
    """Energy to move data."""

    dimension = "J/B"
    sane = (1e-16, 1e-6)


class Leakage(Number):
    """Power that memory takes at rest."""

    dimension = "W/B"
    zero_allowed = True
    sane = (1e-18, 1e-3)


class Density(Number):
    """Wires along the edge of a die."""

    dimension = "1/mm"
    sane = (1e-2, 1e5)


class LinkRate(Number):
    """What one wire or lane carries, one direction."""

    dimension = "B/s"
    sane = (1e6, 1e12)


class Rate(Number):
    """The rate of a dtype over that of fp16."""

    sane = (1e-3, 1e3)


class PackageRatio(Number):
    """The area of a package over that of its dies."""

    sane = (1.0, 100.0)


class Length(Number):
    """A length on a die or in a package."""

    dimension = "mm"
    sane = (1e-4, 1e4)
