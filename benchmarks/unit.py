"""A unit of the machine: CPU seconds of a fixed piece of work, half of it Python's and half of it numpy's.

Measured in the run that measures everything else, it says how fast the machine was just then.
"""

from __future__ import annotations

from time import process_time

import numpy as np

UNIT = "unit of the machine"


def machine_unit_s(repeat: int) -> list[float]:
    """Return the CPU seconds of the work, so many times; it takes about a fifth of a second."""
    return [_once_s() for _ in range(repeat)]


def _once_s() -> float:
    start = process_time()
    found: dict[tuple[int, int], float] = {}
    for number in range(120_000):
        key = number % 997, number % 31
        found[key] = found.get(key, 0.0) + number * 0.5
    # As much as stays in the cache of a core.
    values = np.linspace(1.0, 2.0, 65_536)
    for _ in range(300):
        values = np.sqrt(np.maximum(values * values, np.ceil(values)))
    return process_time() - start
