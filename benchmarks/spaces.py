"""Spaces of chip designs: monolithic and of two dies, on two nodes, all of different areas and powers."""

from __future__ import annotations

from math import isqrt

import numpy as np

from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.explore.designs.setting import DesignSetting
from slipstick.explore.designs.space import DesignSpace

_FORMS = 4


def setting() -> DesignSetting:
    """Return what stands around every design: the usual technology, prices and servers."""
    return DesignSetting(technology=load_technology(), prices=load_prices())


def space(num_designs: int) -> DesignSpace:
    """Return a space of at least so many designs: as many areas as powers, on N5 and N3, of one die and two."""
    num = isqrt((num_designs - 1) // _FORMS) + 1
    areas, powers = np.linspace(300.0, 800.0, num), np.linspace(600.0, 1400.0, num)
    return DesignSpace(
        nodes=("N5", "N3"), die_mm2=tuple(areas.tolist()), power_w=tuple(powers.tolist()), num_dies=(1, 2),
        memories=("hbm3e",),
    )  # fmt: skip
