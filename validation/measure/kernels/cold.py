"""Calls on operands that no cache holds, as in a step, where each tensor comes by once or twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ..device import Device, facts_of
from .probe import Call

# Times the last cache that the operands of all calls take together.
BEYOND = 2


def cold(one: Callable[[], Call], num_bytes: float, device: Device) -> Call:
    """Make as many calls as it takes to fill the caches and return what runs them in turn.

    Results live until their turn comes again, so that they too are written to memory that was long not touched.
    `num_bytes` are what one call reads and writes.
    """
    wanted = BEYOND * facts_of(device).cache_bytes / max(num_bytes, 1.0)
    calls = [one() for _ in range(min(device.most_turns, 1 + int(wanted)))]
    results: list[object] = [call() for call in calls]
    turns = itertools.cycle(range(len(calls)))

    def run() -> object:
        turn = next(turns)
        results[turn] = calls[turn]()
        return results[turn]

    return run
