"""Clocks of a chip that is given less power than it was made for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.sizes.expr import Num
from .chip import Chip, Peaks

# Part of the design power that does not follow the clock: leakage, memory, links. Idle and memory-bound readings of
# data-centre GPUs lie between a fifth and two fifths of it.
STATIC_SHARE = 0.3


def clock_share(chip: Chip) -> Num:
    """Return the clock under the power limit over the one without: ((P - P_0) / (P_design - P_0))^(1/3), at most 1.

    Dynamic power goes as f V^2 and V as f, so the clock goes as the third root of what is left for it. A limit that
    leaves nothing gives a hundredth.

    >>> from slipstick.backends.machine.load import load_system
    >>> f'{clock_share(load_system("dgx-h100", ["chip.power_limit=500 W"]).chip):.3f}'  # of 700 W
    '0.840'
    """
    if chip.power_limit_w is None:
        return 1.0
    static_w = STATIC_SHARE * chip.power_w
    left = np.maximum((chip.power_limit_w - static_w) / (chip.power_w - static_w), 1e-6)
    return np.minimum(left, 1.0) ** (1.0 / 3.0)


def powered(chip: Chip) -> Chip:
    """Return the chip at the clock and matrix peaks that its power limit leaves; itself where there is no limit.

    Matrix products draw the whole design power; kernels that wait for memory do not, and keep their clocks.
    """
    share = clock_share(chip)
    if np.all(share == 1.0):
        return chip
    p = chip.peak_flop_per_s
    peaks = Peaks(
        bf16=_times(p.bf16, share), fp16=_times(p.fp16, share), tf32=_times(p.tf32, share), fp32=p.fp32 * share,
        fp8=_times(p.fp8, share), int8=_times(p.int8, share), fp64=_times(p.fp64, share), fp6=_times(p.fp6, share),
        fp4=_times(p.fp4, share), int4=_times(p.int4, share),
    )  # fmt: skip
    return replace(chip, peak_flop_per_s=peaks, clock_hz=chip.clock_hz * share)


def _times(peak: Num | None, share: Num) -> Num | None:
    return None if peak is None else peak * share
