"""What has no model of its own: one efficiency for each unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .limits import ChipShare, Limit, Scope


@dataclass(frozen=True, slots=True)
class RooflineConstants:
    """Parts of the peaks and of the memory's bandwidth that kernels reach."""

    matmul_efficiency: Annotated[float, Limit(Scope.CHIP, 0.0, 1.0)]
    memory_efficiency: ChipShare
    vector_efficiency: Annotated[float, Limit(Scope.CHIP, 0.0, 1.0)]
