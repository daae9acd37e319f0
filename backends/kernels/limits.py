"""What a constant of a kernel model may be, and what a fit may move."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, TypeAlias, get_args, get_type_hints

from ...ir.records import dataclass


class Scope(StrEnum):
    """What a constant belongs to, and so what may be fitted to the measurements of one chip or library."""

    KERNEL = "kernel"  # carries over to any chip: fitted over several chips at once
    CHIP = "chip"  # a chip's own
    LIBRARY = "library"  # a chip's under one library and way of measuring


@dataclass(frozen=True, slots=True)
class ConstantRange:
    """The range of a constant and what it belongs to."""

    scope: Scope
    low: float
    high: float


# A time that a library adds to every call, launch and fixed work together.
Overhead: TypeAlias = Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 2e-4)]
# A part of a data-sheet rate that a chip reaches.
ChipShare: TypeAlias = Annotated[float, ConstantRange(Scope.CHIP, 0.01, 1.5)]


# What the rows hold that constants were fitted to, by class and kind of kernel (any for all): rows, columns, what is
# summed over; queries, keys, elements of a head; bytes; ranks; the chip's matrix peak over its memory's bandwidth.
# Products: vidur, aiconfigurator, LLMCompass, SimuMax, DeepGEMM. Attention: aiconfigurator, FlashAttention 2 and 3.
# Experts: aiconfigurator. Element-wise: vidur, LLMCompass. Messages: nccl-tests and others, tests/validation.
ANY = "any"
Ranges: TypeAlias = Mapping[str, tuple[float, float]]
FITTED: Mapping[str, Mapping[str, Ranges]] = MappingProxyType(
    {
        "products": {
            "bf16": {"m": (1, 128384), "n": (32, 129280), "k": (32, 129280), "FLOP/B": (110, 420)},
            "fp8": {"m": (1, 8192), "n": (1024, 32768), "k": (512, 16384), "FLOP/B": (560, 600)},
            "nvfp4": {"m": (1, 8192), "n": (1024, 16384), "k": (1024, 16384), "FLOP/B": (1120, 1130)},
        },
        "attention": {ANY: {"q": (1, 32768), "kv": (128, 131072), "head": (64, 576), "FLOP/B": (152, 300)}},
        "experts": {
            "bf16": {"rows": (1, 131072), "n": (384, 28672), "k": (192, 14336), "FLOP/B": (152, 300)},
            "fp8": {"rows": (1, 131072), "n": (512, 28672), "k": (256, 14336), "FLOP/B": (590, 600)},
            "nvfp4": {"rows": (1, 131072), "n": (384, 28672), "k": (192, 14336), "FLOP/B": (1120, 1130)},
        },
        "element-wise": {ANY: {"bytes": (4096, 2818572288), "TB/s": (0.69, 3.36)}},
        "messages": {ANY: {"bytes": (32, 17179869184), "ranks": (2, 8)}},
    }
)


def beyond_fit(cls: str, kind: str, found: Mapping[str, float]) -> tuple[tuple[str, float, float, float], ...]:
    """Return inputs of a kernel outside the rows that fitted its constants, each with its value and the ends of these.

    A kind without rows has the constants of the first of its class.

    >>> beyond_fit("products", "bf16", {"m": 1, "n": 4096, "FLOP/B": 37})
    (('FLOP/B', 37, 110, 420),)
    """
    kinds = FITTED[cls]
    known = kinds.get(kind, next(iter(kinds.values())))
    return tuple((name, x, *known[name]) for name, x in found.items() if not known[name][0] <= x <= known[name][1])


def limits_of(constants: type) -> Mapping[str, ConstantRange]:
    """Return the limits of a class of constants, by field; every field has one.

    >>> from slipstick.backends.kernels.gemm import GemmConstants
    >>> limits_of(GemmConstants)["sustained"].scope.value
    'library'
    """
    found = {}
    for name, hint in get_type_hints(constants, include_extras=True).items():
        limits = [a for a in get_args(hint) if isinstance(a, ConstantRange)]
        if limits:
            found[name] = limits[0]
    return MappingProxyType(found)


if not TYPE_CHECKING:
    # Hints take longer to read than a plan to price, and mypy takes no class for Hashable.
    limits_of = cache(limits_of)
