"""DualPipe: micro-batches enter a pipeline from both ends (DeepSeek-V3, arXiv 2412.19437, section 3.2.1, figure 5)."""

from __future__ import annotations

from collections import deque

import numpy as np

from .tasks import Index, Kind, Order, OrderBuilder, Schedule
from .v_shaped import vee

DOWN, UP = 0, 1


def two_ways(num_stages: int) -> tuple[Index, Index]:
    """Return the stage behind each chunk, and the chunk there.

    Chunk 0 of stage i is stage i of one copy, chunk 1 stage p - 1 - i of another.
    """
    stages = np.arange(num_stages)
    next_stage = np.stack([np.where(stages == num_stages - 1, -1, stages + 1), stages - 1], axis=1)
    next_chunk = np.where(next_stage >= 0, np.array([DOWN, UP]), -1)
    return next_stage, next_chunk


def dualpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """The order of the reference implementation (deepseek-ai/DualPipe, `dualpipe.py`).

    An even number of stages, an even number of micro-batches, of those at least two a stage; the first half goes down,
    the other half up. A forward task joined with a backward task of the other direction is there as both.
    """
    half, each = num_stages // 2, num_micro_batches // 2
    depths = [min(i, num_stages - 1 - i) for i in range(num_stages)]
    orders = tuple(_Stage(half, d, each, each, i >= half).order() for i, d in enumerate(depths))
    return Schedule("dualpipe", num_micro_batches, orders, *two_ways(num_stages))


def dualpipe_v(num_stages: int, num_micro_batches: int) -> Schedule:
    """DualPipe cut in half, each half with its own micro-batches: PyTorch's `ScheduleDualPipeV`, `dualpipev.py` there.

    The model goes down the stages and up again as in ZB-V: what is the other direction of DualPipe is the second chunk,
    and no parameter is there twice. At least two micro-batches a stage.
    """
    orders = tuple(_Stage(num_stages, i, num_micro_batches, 0, False).order() for i in range(num_stages))
    return Schedule("dualpipe-v", num_micro_batches, orders, *vee(num_stages), chunk_share=0.5)


class _Stage:
    """The order of one stage; direction 0 is the one whose micro-batches enter at the nearer end.

    `half` is the number of stages up to the middle, `depth` those between this one and its end, `each` the
    micro-batches of a direction; those of the second are numbered from `second` on.
    """

    def __init__(self, half: int, depth: int, each: int, second: int, flipped: bool) -> None:
        self.half, self.depth, self.each, self.second, self.flipped = half, depth, each, second, flipped
        self.found = OrderBuilder()
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.late: deque[tuple[int, int]] = deque()

    def order(self) -> Order:
        """Return the eight steps of the implementation, one behind the other."""
        outside = self.half - self.depth - 1
        for _ in range(2 * outside):
            self.forward(0)
        for _ in range(self.depth + 1):
            self.forward(0)
            self.forward(1)
        for _ in range(outside):
            self.backward(1, late=True)
            self.weights()
            self.forward(1)
        for k in range(self.each - 2 * self.half + self.depth + 1):
            # The two stages in the middle do not overlap their first pair.
            self.pair(0, 1, joined=k > 0 or outside > 0)
            self.pair(1, 0)
        for _ in range(outside):
            self.backward(1)
            self.pair(1, 0)
        self.drain(outside)
        return self.found.order()

    def drain(self, outside: int) -> None:
        """The last three steps: in the second half of the backward tasks weights come later."""
        num = self.depth + 1
        for k in range(num):
            self.backward(1, late=k > num // 2 or (k == num // 2 and self.depth % 2 == 1))
            self.backward(0, late=k >= num // 2)
        for _ in range(outside):
            self.weights()
            self.backward(0, late=True)
        for _ in range(num):
            self.weights()

    def forward(self, direction: int, joined: bool = False) -> None:
        """Run a forward task."""
        chunk, number = self._next(self.forwards, direction)
        self.found.add(Kind.FORWARD, number, chunk, joined)

    def backward(self, direction: int, late: bool = False) -> None:
        """Run a backward task, or the first part of it."""
        chunk, number = self._next(self.backwards, direction)
        self.found.add(Kind.DGRAD if late else Kind.BACKWARD, number, chunk)
        if late:
            self.late.append((number, chunk))

    def pair(self, forward: int, backward: int, joined: bool = True) -> None:
        """Run a forward task of one direction and a backward task of the other."""
        self.forward(forward, joined)
        self.backward(backward)

    def weights(self) -> None:
        """Run the gradients of weights that wait longest."""
        self.found.add(Kind.WGRAD, *self.late.popleft())

    def _next(self, counts: list[int], direction: int) -> tuple[int, int]:
        chunk = direction ^ self.flipped
        counts[chunk] += 1
        return chunk, counts[chunk] - 1 + chunk * self.second
