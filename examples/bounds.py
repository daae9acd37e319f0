"""What steps and matrix products wait for, in few words: compute, memory, network, overhead."""

from __future__ import annotations

from collections.abc import Iterable

import slipstick
from slipstick.backends.pricing.timing import PricedGroup
from slipstick.report.bounds import bound_seconds, kernel_bounds, node_seconds

BOUNDS: tuple[str, ...] = ("compute", "memory", "overhead")
STEP_BOUNDS: tuple[str, ...] = ("compute", "memory", "network", "overhead")
# What units take in from memory and cache is a level of memory: bytes over a bandwidth.
_GROUPS = {"matrix": "compute", "vector": "compute", "ingest": "memory", "hbm": "memory", "network": "network"}


def step_bounds(found: slipstick.Estimate) -> dict[str, float]:
    """Return seconds of a step by what they wait for; bubbles, launches and the host are overhead."""
    seconds = dict.fromkeys(STEP_BOUNDS, 0.0)
    for resource, spent in bound_seconds(found).items():
        seconds[_GROUPS.get(resource.partition(".")[0], "overhead")] += spent
    return seconds


def bound_of(priced: PricedGroup, row: int) -> str:
    """Say what most of a kernel's time waits for; launches, fixed work and second passes are overhead."""
    assert priced.kernels is not None
    at = row, int(priced.point[0])
    bounds = kernel_bounds(priced.kernels, at, float(priced.time_s[at]))
    return _GROUPS.get(max(bounds, key=lambda name: bounds[name]), "overhead")


def product_shares(found: slipstick.Estimate) -> dict[str, float]:
    """Return the part of the time of all matrix products that those of each bound have."""
    products = ((priced, row, s) for priced, row, entry, s in node_seconds(found) if entry.op == "matmul")
    return shares((bound_of(priced, row), seconds) for priced, row, seconds in products)


def shares(spent: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return parts of the whole by bound, every one of them named.

    >>> shares([("memory", 3.0), ("compute", 1.0)])
    {'compute': 0.25, 'memory': 0.75, 'overhead': 0.0}
    """
    found = dict.fromkeys(BOUNDS, 0.0)
    for bound, seconds in spent:
        found[bound] += seconds
    return {bound: seconds / sum(found.values()) for bound, seconds in found.items()}
