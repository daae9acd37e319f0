"""Types of operands: bytes of an element, the units that multiply them, and whose constants serve them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Bytes of an element with its scales: nvfp4 has one of a byte for 16 elements, mxfp4 and mxfp8 for 32, int4 one of two
# for 128, fp8_block one of four for 128.
OPERAND_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp6": 0.75,
        "fp8_row": 1.0, "fp8_block": 1.03125, "mxfp8": 1.03125,
        "fp4": 0.5, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.515625, "int4_group": 0.515625,
        "fp8_tile": 1.0 + 4 / 128**2,
    }
)  # fmt: skip
# What multiplies formats with scales.
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "nvfp4": "fp4",
        "mxfp4": "fp4",
        "fp8_row": "fp8",
        "fp8_block": "fp8",
        "fp8_tile": "fp8",
        "mxfp8": "fp8",
        "int4_group": "int4",
    }
)
# Whose constants serve a dtype: fp16 and bf16 are one unit, one rate, one set of kernels.
_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "fp16": "bf16",
        "fp4": "nvfp4",
        "fp6": "nvfp4",
        "fp8_row": "fp8",
        "fp8_block": "fp8",
        "mxfp8": "fp8",
        "int8": "fp8",
    }
)


def unit_of(dtype: str) -> str:
    """Return the dtype of the chip's peak that products of operands of a dtype run at.

    >>> unit_of("mxfp8"), unit_of("bf16")
    ('fp8', 'bf16')
    """
    return UNITS.get(dtype, dtype)


def gemm_kinds(dtype: str) -> tuple[str, ...]:
    """Name the kinds of constants that serve products of a dtype, the best first.

    >>> gemm_kinds("fp16")
    ('fp16', 'bf16')
    """
    return (dtype, _KINDS[dtype]) if dtype in _KINDS else (dtype,)
