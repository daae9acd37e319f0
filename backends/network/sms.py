"""What a collective takes from the chip while it runs beside other kernels: SMs that move and reduce its data."""

from __future__ import annotations

import numpy as np

from ...ir.sizes.expr import Num
from ..machine.system import System

# Without a protocol nothing says who moves the data; engines for copies take no SM.
_NONE = 0.0


def lent_share(system: System) -> Num:
    """Return the part of the SMs that collectives take: that of the innermost level whose protocol says so.

    A library drives its links between nodes from the same SMs.

    >>> from slipstick.backends.machine.load import load_system
    >>> round(lent_share(load_system("dgx-h100")) * 132)
    16
    """
    return next((sm_share(system, level.name) for level in system.levels if level.protocol), _NONE)


def sm_share(system: System, level: str) -> Num:
    """Return the part of the chip's SMs that a collective over a level takes, at most 1; 0 where no protocol is named.

    Products that run at the same time have the rest, so that they take 1/(1 - share) of their time alone.

    >>> from slipstick.backends.machine.load import load_system
    >>> round(sm_share(load_system("dgx-h100"), "nvlink") * 132)
    16
    """
    (found,) = (v for v in system.levels if v.name == level)
    if not found.protocol:
        return _NONE
    return np.minimum(system.kernels.collective[found.protocol].channels / system.chip.num_sms, 1.0)
