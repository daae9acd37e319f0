"""Dynamic energy of a chip over that of the chip whose energies were measured, from its node, voltage and die.

    logic: power(node) / power(N5) (V / V0)^2        wires: side / 28.5 mm (V / V0)^2

Power of a node is at the same clock and voltage: `nodes.yaml`. A wire of a length has about the same capacity on all
nodes (Dally, Turakhia and Han, CACM 2020), so that only its length and its voltage count.
"""

from __future__ import annotations

import numpy as np

from ...ir.sizes.expr import Num
from .data import Technology

# The chip of `prices.energy`: H100, 814 mm2 of a process of the 5 nm family.
FITTED_NODE, FITTED_SIDE_MM = "N5", 814.0**0.5
# Processes that are a node of the data under another name.
_FAMILIES = {"N4": "N5", "N4P": "N5", "N6": "N7"}


def node_of(technology: Technology, process: str) -> str:
    """Return the node of the data that a process is of; the fitted one, or the first, for a process without data.

    >>> from .data import load_technology
    >>> node_of(load_technology(), "N4P")
    'N5'
    """
    name, names = _FAMILIES.get(process, process), technology.node_names
    return next((one for one in (process, name, FITTED_NODE) if one in names), names[0])


def logic_energy(technology: Technology, process: str, volts_share: Num = 1.0) -> Num:
    """Return the energy of logic on a node at a share of the nominal voltage.

    >>> from .data import load_technology
    >>> float(logic_energy(load_technology(), "N7"))
    1.3
    """
    fitted = node_of(technology, FITTED_NODE)
    return technology.scale(fitted, node_of(technology, process)).power * volts_share**2


def wire_energy(die_mm2: Num, volts_share: Num = 1.0) -> Num:
    """Return the energy of wires across a square die."""
    side_mm: Num = np.sqrt(die_mm2)
    ratio: Num = side_mm / FITTED_SIDE_MM * volts_share**2
    return ratio
