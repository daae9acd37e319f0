"""Weights in fewer bits than the matrix units take: what it costs to widen them inside of a product.

A thread block widens the weights of its tile once, in registers, beside the loads and the products. No kernel of this
kind is among the measured tables, so that the clocks here are counted, not fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.errors import NotBuiltError

if TYPE_CHECKING:
    from ..machine.chip import Chip

FP4 = "fp4"

# Instructions for four weights, bit operations and arithmetic on pairs, group scales included: vLLM
# `csrc/quantization/marlin/dequant.h`, to bf16. A scale a channel is applied to the result.
_INSTRUCTIONS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"int4": (3, 4), "int4_group": (3, 4), "mxfp4": (7, 2), "nvfp4": (7, 2), "fp8": (7, 2), "int8": (6, 4)}
)
# With conversions in hardware: one for two weights (PTX `cvt.rn.f16x2.e2m1x2`, sm_100a and later), one product for two.
_CONVERTED: Mapping[str, tuple[int, int]] = MappingProxyType({"mxfp4": (2, 2), "nvfp4": (2, 2)})
# What a multiprocessor issues of each in a clock: CUDA C++ programming guide, throughput of native arithmetic
# instructions, compute capability 8.0 and 9.0.
_BIT_OPERATIONS, _ARITHMETIC = 64.0, 128.0
# Rows of the tiles of such kernels, which few rows of a decode step do not leave empty (the same, `marlin_template.h`).
THIN_ROWS = 16
THIN_TILES = ((16, 256), (32, 128), (32, 256))
# What is wide enough for matrix units to take weights only once they are widened.
_WIDE = frozenset(("bf16", "fp16", "fp32", "tf32"))


def widens(unit: str, weights: str | None) -> bool:
    """Whether a product at a unit has to widen its weights.

    >>> widens("bf16", "int4_group"), widens("fp8", "mxfp4"), widens("bf16", "bf16")
    (True, False, False)
    """
    return unit in _WIDE and weights is not None and weights not in _WIDE


def converts_fp4(chip: Chip) -> bool:
    """Whether a chip converts fp4 in hardware: those do that have matrix units for it."""
    return FP4 in chip.peak_flop_per_s.by_dtype()


def widen_clocks(weights: str, converts: bool = False) -> float:
    """Return the clocks of a multiprocessor for a weight; NotBuiltError for a type that no kernel widens.

    Args:
        weights: their type.
        converts: whether the chip converts fp4 in hardware, as those do that multiply it.

    >>> widen_clocks("int4_group") == (3 / 64 + 4 / 128) / 4
    True
    """
    if weights not in _INSTRUCTIONS:
        raise NotBuiltError(f"weights of {weights} in a product: no kernel widens them; of {', '.join(_INSTRUCTIONS)}")
    bits, arithmetic = (converts and _CONVERTED.get(weights)) or _INSTRUCTIONS[weights]
    return (bits / _BIT_OPERATIONS + arithmetic / _ARITHMETIC) / 4.0
