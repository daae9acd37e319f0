"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .limits import ChipShare, Limit, Overhead, Scope


@dataclass(frozen=True, slots=True)
class GemmConstants:
    """Constants of a product at one precision of its operands.

    Attributes:
        overhead_s: O, launch and fixed work.
        sustained: u_s, part of the peak that power and clocks allow for long.
        memory: u_m, part of the memory's bandwidth.
        tensor: u_c, part of the peak inside of a tile.
        prologue: k0, the start and end of a tile in units of k.
        feed: lambda, on-chip bandwidth over that of the memory.
    """

    overhead_s: Overhead
    sustained: Annotated[float, Limit(Scope.LIBRARY, 0.2, 1.0)]
    memory: ChipShare
    tensor: Annotated[float, Limit(Scope.KERNEL, 0.3, 1.0)]
    prologue: Annotated[float, Limit(Scope.KERNEL, 0.0, 4000.0)]
    feed: Annotated[float, Limit(Scope.KERNEL, 0.5, 50.0)]
