"""What cooling takes from the dies of a machine, as of a design."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np

from ....ir.errors import UsageError
from ....ir.sizes.expr import Num
from ...machine.files.catalogue import read_at
from ...machine.files.kinds import Least
from ...machine.files.section import Section, section_of
from ...machine.package import Package
from .schema import CoolingSection

_FILE = Path(__file__).parents[1] / "data" / "cooling.yaml"


class _Kinds(Section):
    cooling: Annotated[dict[str, CoolingSection], Least()]


@cache
def fluxes() -> dict[str, float]:
    """Return the W/mm2 that each kind of cooling takes from dies, the least first.

    >>> fluxes()
    {'air': 1.0, 'liquid': 2.0, 'two-phase': 3.0}
    """
    file = read_at("cooling", "technology/data/cooling.yaml", _FILE, "technology file 'cooling'")
    found = section_of(_Kinds, dict(file.tree), "technology")
    return {name: kind.flux.si for name, kind in found.cooling.items()}


def check_heat(package: Package, chip_w: Num, cooling: str) -> None:
    """Raise UsageError where the dies of a package, each rank of so many watts, are hotter than their cooling takes."""
    area_mm2 = sum((die.area_mm2 * count for die, count in package.assembly.counted_dies()), start=0.0)
    heat, flux = np.multiply(chip_w, package.num_ranks) / np.maximum(area_mm2, 1e-9), fluxes()[cooling]
    if np.any(area_mm2 > 0.0) and np.any(heat > flux * (1 + 1e-9)):
        able = [name for name, most in fluxes().items() if np.max(heat) <= most]
        raise UsageError(
            f"the dies get rid of {np.max(heat):.3g} W/mm2, and their cooling by {cooling} takes {flux:.3g} W/mm2: "
            f"lower chip.power{f', or set server.cooling={able[0]}' if able else ''}"
        )
