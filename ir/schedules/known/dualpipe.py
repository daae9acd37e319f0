"""DualPipe: micro-batches enter a pipeline from both ends (DeepSeek-V3, arXiv 2412.19437, section 3.2.1, figure 5).

The order is that of the reference implementation (deepseek-ai/DualPipe, `dualpipe.py`), which asks for an even number
of stages and of micro-batches, of these at least two a stage; the first half goes down, the other half up. A forward
task joined with a backward task of the other direction is there as both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..kind import Kind, Requirement, ScheduleKind, Task, from_both_ends


class EightSteps:
    """The order of one stage; direction 0 is the one whose micro-batches enter at the nearer end.

    `half` is the number of stages up to the middle, `depth` those between this one and its end, `each` the
    micro-batches of a direction; those of the second are numbered from `second` on.
    """

    def __init__(self, half: int, depth: int, each: int, second: int = 0, flipped: bool = False) -> None:
        """Start with no task."""
        self.half, self.depth, self.each, self.second, self.flipped = half, depth, each, second, flipped
        self.tasks: list[Task] = []
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.late: deque[tuple[int, int]] = deque()

    def order(self) -> Sequence[Task]:
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
        return self.tasks

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
        self.tasks.append(Task(Kind.FORWARD, number, chunk, joined))

    def backward(self, direction: int, late: bool = False) -> None:
        """Run a backward task, or the first part of it."""
        chunk, number = self._next(self.backwards, direction)
        self.tasks.append(Task(Kind.DGRAD if late else Kind.BACKWARD, number, chunk))
        if late:
            self.late.append((number, chunk))

    def pair(self, forward: int, backward: int, joined: bool = True) -> None:
        """Run a forward task of one direction and a backward task of the other."""
        self.forward(forward, joined)
        self.backward(backward)

    def weights(self) -> None:
        """Run the gradients of weights that wait longest."""
        self.tasks.append(Task(Kind.WGRAD, *self.late.popleft()))

    def _next(self, counts: list[int], direction: int) -> tuple[int, int]:
        chunk = direction ^ self.flipped
        counts[chunk] += 1
        return chunk, counts[chunk] - 1 + chunk * self.second


def two_a_stage(told: str) -> Requirement:
    """Return the requirement of the eight steps, whose first ones run so many micro-batches ahead."""
    return Requirement(
        lambda s: s.m < 2 * s.p,
        lambda s: f"{told}, 2 x pp={s.p} = {2 * s.p}; gbs / (mbs x dp) = {s.m}; nearest: {2 * s.p} micro-batches",
    )


def order(stage: int, p: int, m: int, v: int) -> Sequence[Task]:
    """Return the tasks of a stage; those in the second half are flipped."""
    return EightSteps(p // 2, min(stage, p - 1 - stage), m // 2, m // 2, stage >= p // 2).order()


SCHEDULE = ScheduleKind(
    name="dualpipe",
    help="from both ends; two copies of the parameters",
    published="2024-12",
    order=order,
    # p + 1 micro-batches, each in one of the two copies (table 2 of the paper).
    in_flight=lambda s, stage: (s.p + 1) / 2,
    places=from_both_ends,
    copies=2,
    split_backward=True,
    filling_rounds=4,
    requirements=(
        Requirement(
            lambda s: s.p % 2 == 1,
            lambda s: f"schedule dualpipe needs an even number of stages, not pp={s.p}; nearest: {s.p - 1}, {s.p + 1}",
        ),
        two_a_stage("schedule dualpipe needs two micro-batches a stage"),
        Requirement(
            lambda s: s.m % 2 == 1,
            lambda s: (
                f"schedule dualpipe sends half of the micro-batches each way; gbs / (mbs x dp) = {s.m} "
                f"is odd; nearest: {s.m - 1} or {s.m + 1} micro-batches"
            ),
        ),
    ),
)
