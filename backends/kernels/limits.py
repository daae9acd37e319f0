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
