"""What a collective takes from the chip while it runs beside other kernels: SMs and bandwidth of memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.sizes.expr import Num
from ..machine.system import System
from .topology.level import NetworkLevel

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


def memory_share(levels: Sequence[NetworkLevel], hbm_bytes_per_s: Num, ranks: Num, stride: Num) -> Num:
    """Return the part of the bandwidth of HBM that a collective over every `stride`-th rank takes, at most 1.

    What arrives is written and read once more to be sent on: 2 x rate / HBM. A rank receives over its own links of the
    innermost level that the group spans, and what its peers there pass on of their links of the levels around it.

    >>> from slipstick.backends.machine.load import load_system
    >>> system = load_system("dgx-h100")
    >>> [round(float(memory_share(system.levels, 3.35e12, n, 1)), 3) for n in (1, 8, 64)]  # 450, then 8 x 50 GB/s
    [0.0, 0.269, 0.239]
    """
    inside = np.ones_like(np.asarray(ranks, dtype=float))
    rate = np.full_like(inside, np.inf)
    for level in levels:
        size = np.inf if level.size is None else level.size
        here = np.minimum(ranks, np.maximum(size / stride, 1.0))
        rate = np.where(here > inside, np.minimum(rate, level.bytes_per_s * inside), rate)
        inside = np.maximum(here, inside)
    return np.where(np.isfinite(rate), np.minimum(2.0 * rate / hbm_bytes_per_s, 1.0), 0.0)
