"""Clocks of a chip in steady work under its power limit, and what its units draw."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...ir.sizes.expr import Num
from .chip import Chip
from .power_constants import PowerConstants

if TYPE_CHECKING:
    from .system import System

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
    drawn = busy * constants.narrow if dtype in _NARROWER else busy
    return constants.clock(limit_w, chip.power_w, np.minimum(wide, narrow), drawn)


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
