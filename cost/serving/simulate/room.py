"""The KV cache of one group: what sequences hold in whole blocks, now and some decode steps ahead."""

from __future__ import annotations

import math

import numpy as np

from ....backends.machine.software.engine import Scheduler
from ..batching.times import StepTimes

# What rounding may leave of bytes that are all given back.
_SLACK = 1e-9


class Room:
    """Bytes of a cache and who holds them.

    A holder either holds what it was given, or grows with each decode step and takes a block whenever one is full.
    `clock` is the number of decode steps so far.

    Args:
        times: says what so many tokens take.
        scheduler: says how many tokens a block has.
        longest: tokens of the longest request.
        shared: tokens that sequences have in common and that are held once, whoever runs.
    """

    __slots__ = (
        "_base",
        "_block",
        "_free",
        "_grown",
        "_held",
        "_known",
        "_rate",
        "_shared",
        "_table",
        "capacity_bytes",
    )

    def __init__(self, times: StepTimes, scheduler: Scheduler, longest: int, shared: int = 0) -> None:
        self._block = scheduler.block_tokens
        blocks = np.arange(1, math.ceil(longest / self._block) + 3, dtype=np.float64)
        self._table = np.concatenate(
            [[0.0], np.maximum.accumulate(np.maximum(times.kv_bytes(blocks * self._block), 0.0))]
        )
        self.capacity_bytes = times.free_bytes / times.groups
        self._shared = shared // self._block
        self._held = float(self._table[self._shared])
        # Blocks, rounded up when the fraction is cut off; places without a holder stay at none.
        self._base, self._rate = np.zeros(8), np.zeros(8)
        self._free = list(range(8))
        # What those who grow hold at one clock: asked for again and again until one comes or leaves.
        self._known, self._grown = -1, 0.0

    def bytes_of(self, tokens: float) -> float:
        """Bytes of the blocks of so many tokens."""
        return float(self._table[math.ceil(tokens / self._block)])

    def longest(self, num_bytes: float) -> int:
        """Tokens that fit into so many bytes, in whole blocks, up to those of the longest request."""
        return self._block * int(np.searchsorted(self._table, num_bytes, side="right") - 1)

    def saved_bytes(self, cached: int) -> float:
        """Bytes of the full blocks of a sequence's cached tokens that are held already."""
        return float(self._table[min(cached // self._block, self._shared)])

    def used_bytes(self, clock: int) -> float:
        """Bytes in use after so many decode steps."""
        if clock != self._known:
            blocks = (self._base + self._rate * clock).astype(np.intp)
            self._known, self._grown = clock, float(np.add.reduce(self._table[blocks]))
        return self._held + self._grown

    def fits(self, num_bytes: float, clock: int, spare: float = 0.0) -> bool:
        """Whether so many bytes more can be given out, and a share `spare` of the cache is still free then."""
        return self.used_bytes(clock) + num_bytes <= self.capacity_bytes * (1.0 - spare) * (1.0 + _SLACK)

    def hold(self, num_bytes: float) -> None:
        """Give out bytes; negative ones come back."""
        self._held += num_bytes

    def grow(self, tokens: float, rate: float, clock: int) -> int:
        """Give out a place that holds `tokens` now and `rate` more after each decode step."""
        if not self._free:
            size = len(self._base)
            self._base, self._rate = (np.concatenate([a, np.zeros(size)]) for a in (self._base, self._rate))
            self._free = list(range(size, 2 * size))
        place, self._known = self._free.pop(), -1
        self._base[place] = (tokens - rate * clock) / self._block + (1.0 - _SLACK)
        self._rate[place] = rate / self._block
        return place

    def leave(self, place: int) -> None:
        """Take a place back."""
        self._base[place] = self._rate[place] = 0.0
        self._known = -1
        self._free.append(place)

    def steps(self, clock: int, most: int) -> int:
        """The most decode steps, up to `most`, that all who grow can make."""
        if self.fits(0.0, clock + most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(0.0, clock + middle) else (low, middle)
        return low
