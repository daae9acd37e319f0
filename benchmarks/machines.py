"""Random chip designs beside one another on one network, as a table of machines."""

from __future__ import annotations

import numpy as np

from slipstick.backends.machine.system import System
from slipstick.backends.machine.system_table import machine_numbers, tabled

_SEED = 20240722
# What designs differ in; all else is that of the system.
_SWEPT = (
    "chip.matmul.bf16", "chip.vector.fp32", "chip.clock", "chip.memory.hbm.capacity", "chip.memory.hbm.bandwidth",
    "chip.memory.l2.capacity", "network.nvlink.bandwidth", "network.infiniband.bandwidth",
)  # fmt: skip


def random_machines(system: System, num_machines: int) -> System:
    """Draw designs from half of each number of a system to four times it, and SMs from 64 to 256."""
    draw, numbers = np.random.default_rng(_SEED), machine_numbers(system)
    columns = {path: numbers[path] * 2.0 ** draw.uniform(-1.0, 2.0, num_machines) for path in _SWEPT}
    sms = draw.integers(64, 256, num_machines, endpoint=True).astype(np.float64)
    return tabled(system, {**columns, "chip.num_sms": sms})
