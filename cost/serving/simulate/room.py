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
        "_blocks",
        "_each_bytes",
        "_even",
        "_free",
        "_grown",
        "_held",
        "_known",
        "_num",
        "_once_bytes",
        "_over",
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
        # Of a block, and of a sequence beside, where whole numbers fit all: such sums are exact in any order.
        each = float(self._table[2] - self._table[1])
        once, counted = float(self._table[1]) - each, np.arange(1, len(self._table))
        whole = each.is_integer() and once.is_integer() and np.array_equal(self._table[1:], once + each * counted)
        self._each_bytes, self._once_bytes = (each, once) if whole else (0.0, 0.0)
        # Those who then grow by a token a step, by place the tokens that they would have held at clock 0: how many they
        # are, their whole blocks, and how many have each number of tokens left over.
        self._even: dict[int, int] = {}
        self._num, self._blocks, self._over = 0, 0, [0] * self._block
        # The others. Blocks, rounded up when the fraction is cut off; places without a holder stay at none.
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
            self._known, self._grown = clock, self._of_even(clock)
            if len(self._even) + len(self._free) < len(self._base):
                blocks = (self._base + self._rate * clock).astype(np.intp)
                self._grown += float(np.add.reduce(self._table[blocks]))
        return self._held + self._grown

    def _of_even(self, clock: int) -> float:
        """What those take who grow by a token a step: as many blocks as their tokens fill, the last one in part."""
        full, over = divmod(clock, self._block)
        begun = self._num - (0 if over else self._over[0])
        blocks = self._blocks + self._num * full + begun + sum(self._over[self._block - over + 1 :])
        return self._once_bytes * self._num + self._each_bytes * blocks

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
        if self._each_bytes and rate == 1.0 and tokens >= 1 and float(tokens).is_integer():
            self._even[place] = int(tokens) - clock
            self._count(self._even[place], 1)
            return place
        self._base[place] = (tokens - rate * clock) / self._block + (1.0 - _SLACK)
        self._rate[place] = rate / self._block
        return place

    def leave(self, place: int) -> None:
        """Take a place back."""
        if place in self._even:
            self._count(self._even.pop(place), -1)
        else:
            self._base[place] = self._rate[place] = 0.0
        self._known = -1
        self._free.append(place)

    def _count(self, tokens: int, num: int) -> None:
        blocks, over = divmod(tokens, self._block)
        self._num += num
        self._blocks += num * blocks
        self._over[over] += num

    def steps(self, clock: int, most: int) -> int:
        """The most decode steps, up to `most`, that all who grow can make."""
        if self.fits(0.0, clock + most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(0.0, clock + middle) else (low, middle)
        return low
