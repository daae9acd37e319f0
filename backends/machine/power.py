"""Clocks of a chip in steady work under its power limit, and what its units draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ...ir.sizes.expr import Num
from ..kernels.limits import Limit, Scope
from .chip import Chip

if TYPE_CHECKING:
    from .system import System

_LEAST = 0.01  # part of the clock below which no chip goes
_STEPS = 28  # of Newton's method from above: two thirds a step while far, then all digits


@dataclass(frozen=True, slots=True)
class PowerConstants:
    """How the power of a chip in steady work goes with its clock.

    Attributes:
        static_w: what does not follow the clock: leakage, memory, links.
        static_share: the same as a part of the design power, on top.
        energy_j_per_flop: of matrix units, the cores around them included, in 16 bits at the clock of the data sheet;
            narrower operands do more FLOPs in a clock, and draw as much in it. 0 where nobody measured it: the design
            power is then what the chip draws at its full clock.
        rise: part of the voltage at the full clock that goes with the clock; 0 where the voltage cannot fall further.
    """

    static_w: Annotated[float, Limit(Scope.CHIP, 0.0, 2000.0)]
    static_share: Annotated[float, Limit(Scope.CHIP, 0.0, 0.9)]
    energy_j_per_flop: Annotated[float, Limit(Scope.CHIP, 0.0, 1e-10)]
    rise: Annotated[float, Limit(Scope.CHIP, 0.0, 1.0)]

    def clock(self, limit_w: Num, design_w: Num, peak_flop_per_s: Num, busy: float = 1.0) -> Num:
        """Return the part c of the full clock at which the chip draws what it may, at most 1.

            P_limit = P_static + busy P_full c (1 - rise + rise c)^2

        Dynamic power goes as f V^2, and V is affine in f; P_full is energy times the peak, of which products take the
        part `busy` of the time, where the energy is known. A limit that leaves nothing gives a hundredth.
        """
        static_w = self.static_w + self.static_share * design_w
        energy = self.energy_j_per_flop
        full_w = energy * peak_flop_per_s * busy if energy else np.maximum(design_w - static_w, 1e-6 * design_w)
        goal = np.clip((limit_w - static_w) / full_w, 0.0, 1.0)
        # From above, where the left side is convex in c.
        c: Num = np.ones(np.shape(goal)) if np.ndim(goal) else 1.0
        for _ in range(_STEPS):
            volts = 1.0 - self.rise + self.rise * c
            c = c - (c * volts * volts - goal) / (volts * volts + 2.0 * c * self.rise * volts)
        return np.clip(c, _LEAST, 1.0)


# The kind of constants in a calibration: one clock for all units of a chip.
_CHIP = "chip"


# Part of the time in which work keeps matrix units busy, as far as power is concerned: long products alone do all of
# it, and kernels that wait for memory draw three quarters and more of what products do (measured on H100).
_BUSY_TRAINING, _BUSY_SERVING = 0.9, 0.6


# Operations of a dtype in the time of one in 16 bits, on units made for both. Where a chip does more of them than that,
# the power is taken to be that of 16 bits.
_NARROWER = {"fp8": 2.0, "int8": 2.0, "fp6": 2.0, "fp4": 4.0, "int4": 4.0}


def clock_share(chip: Chip, constants: PowerConstants, steady: bool = True, dtype: str = "bf16") -> Num:
    """Return the clock that the power limit leaves products of a dtype, over that of the data sheet.

    A training step draws all it may for hours (`steady`). In inference products come in bursts between kernels that
    wait for memory: the mean over them, which is what is limited, is lower, and constants of kernels hold the clock of
    the design power.

    >>> from slipstick.backends.machine.load import load_system
    >>> system = load_system("a40-server", ["chip.power_limit=200 W"])  # of 300 W
    >>> f'{clock_share(system.chip, system.kernels.power["chip"]):.3f}'
    '0.806'
    """
    if chip.power_limit_w is None and not steady:
        return 1.0
    limit_w = chip.power_w if chip.power_limit_w is None else np.minimum(chip.power_limit_w, chip.power_w)
    busy = _BUSY_TRAINING if steady else _BUSY_SERVING
    peaks = chip.peak_flop_per_s
    wide = peaks.bf16 if peaks.bf16 is not None else peaks.fp16 if peaks.fp16 is not None else peaks.fp32
    narrow = chip.matmul_flop_per_s(dtype) / _NARROWER[dtype] if dtype in _NARROWER else wide
    return constants.clock(limit_w, chip.power_w, np.minimum(wide, narrow), busy)


def powered(system: System, steady: bool) -> Chip:
    """Return the chip with the matrix peaks that its power leaves; itself where that is all of them.

    Kernels of a training step that multiply matrices share a clock, since the power that is limited is a mean over many
    of them. What waits for memory draws less.
    """
    chip, constants = system.chip, system.kernels.power.get(_CHIP)
    if constants is None:
        return chip
    found = {dtype: clock_share(chip, constants, steady, dtype) for dtype in chip.peak_flop_per_s.by_dtype()}
    if all(np.all(share == 1.0) for share in found.values()):
        return chip
    peaks = {dtype: peak * found[dtype] for dtype, peak in chip.peak_flop_per_s.by_dtype().items()}
    return replace(chip, peak_flop_per_s=replace(chip.peak_flop_per_s, **peaks))
