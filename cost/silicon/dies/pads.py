"""Connections below a die or a stack: signals to neighbours and memory, power and ground, test."""

from __future__ import annotations

import math

import numpy as np

from ....backends.machine.package import Assembly, Die, Stack
from ....backends.prices.silicon_schema import ProcessPrices, SiliconSection
from ....ir.sizes.expr import Num


def pads_of(part: Die | Stack | Assembly, process: ProcessPrices, book: SiliconSection) -> Num:
    """Count the connections of one piece to what carries it.

    A die has those of its interfaces, both ways, those for its power and those for its test; a stack the data pins, and
    as many again at the die that it serves. Of an assembly count its dies: what is on it is fed through it.
    """
    if isinstance(part, Stack):
        return 2.0 * book.pads.memory_pins.si
    if isinstance(part, Assembly):
        area = sum((die.area_mm2 * count for die, count in part.counted_dies()), start=0.0)
        return power_pads(area, process, book) + book.pads.test_pads.si
    # Lanes of all interfaces of a die, each way by itself.
    signals = (
        0.0
        if part.d2d is None
        else np.ceil(np.multiply(part.d2d.bytes_per_s, 2.0 * part.d2d.edges) / book.pads.lane_rate.si)
    )
    return power_pads(part.area_mm2, process, book) + signals + book.pads.test_pads.si


def power_pads(area_mm2: Num, process: ProcessPrices, book: SiliconSection) -> Num:
    """N = 2 ceil(P / (V J a)), a = pi (pitch / 4)^2: power and ground, P by area."""
    pad = math.pi * (process.pitch.si / 4.0) ** 2
    one = book.pads.voltage.si * process.pad_current.si * pad
    return 2.0 * np.ceil(np.multiply(area_mm2, book.pads.power_density.si) / one)
