"""Constants of a chip's power: the clock that a limit leaves it in steady work."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..kernels.limits import ConstantRange, Scope

_LEAST = 0.01  # part of the clock below which no chip goes
_STEPS = 28  # of Newton's method from above: two thirds a step while far, then all digits


@dataclass(frozen=True, slots=True)
class PowerConstants:
    """How the power of a chip in steady work goes with its clock.

    Attributes:
        static_w: what does not follow the clock: leakage, memory, links.
        static_share: the same as a part of the design power, on top.
        energy_j_per_flop: of matrix units, the cores around them included, in 16 bits at the clock of the data sheet.
            0 where nobody measured it: the design power is then what the chip draws at its full clock.
        narrow: what operands of fewer bits draw in a clock over those of 16, though they do more FLOPs in it.
        rise: part of the voltage at the full clock that goes with the clock; 0 where the voltage cannot fall further.
    """

    static_w: Annotated[float, ConstantRange(Scope.CHIP, 0.0, 2000.0)]
    static_share: Annotated[float, ConstantRange(Scope.CHIP, 0.0, 0.9)]
    energy_j_per_flop: Annotated[float, ConstantRange(Scope.CHIP, 0.0, 1e-10)]
    narrow: Annotated[float, ConstantRange(Scope.CHIP, 0.2, 2.0)]
    rise: Annotated[float, ConstantRange(Scope.CHIP, 0.0, 1.0)]

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
