"""What is written down while requests are served: moments of each, gaps between tokens, steps, how full it gets."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import field

from ....ir.records import dataclass

NEVER = -1.0  # no time: they count from 0


@dataclass(frozen=True, slots=True)
class SimulatedSteps:
    """A step, or equal ones in a row.

    Attributes:
        lane: the group of the replica that runs it.
        start_s: when it starts.
        length_s: what it takes; all of them together.
        num: steps in a row.
        batch: sequences that decode in each.
        prompts: prompts of which it computes tokens.
        prompt_tokens: those tokens.
        kv_bytes: bytes of cache in use when it ends.
    """

    lane: int
    start_s: float
    length_s: float
    num: int
    batch: int
    prompts: int
    prompt_tokens: int
    kv_bytes: float


class Book:
    """Records of a run, by request and by step.

    Args:
        num: requests.
        most_steps: steps that are kept one by one; 0 for none.
    """

    __slots__ = ("arrived_s", "finish_s", "first_s", "gap_at_s", "gap_s", "gaps", "most_steps", "num_steps",
                 "preemptions", "restarts", "start_s", "steps")  # fmt: skip

    def __init__(self, num: int, most_steps: int = 0) -> None:
        self.arrived_s, self.start_s, self.first_s, self.finish_s = ([NEVER] * num for _ in range(4))
        self.preemptions = [0] * num
        self.restarts: dict[int, int] = {}
        self.gap_s, self.gap_at_s, self.gaps = array("d"), array("d"), array("d")
        self.steps: list[SimulatedSteps] = []
        self.most_steps, self.num_steps = most_steps, 0

    def gap(self, length_s: float, at_s: float, num: float) -> None:
        """Write down that `num` sequences waited so long for their next token."""
        self.gap_s.append(length_s)
        self.gap_at_s.append(at_s)
        self.gaps.append(num)

    @property
    def full(self) -> bool:
        """No more steps are kept."""
        return len(self.steps) >= self.most_steps


@dataclass(slots=True)
class Meter:
    """How much of something there is over time: its integral and its peak."""

    integral: float = 0.0
    peak: float = 0.0
    busy_s: float = 0.0

    def add(self, level: float, length_s: float, most: float) -> None:
        """Count a stretch of time at a level on average, and its highest."""
        self.integral += level * length_s
        self.busy_s += length_s
        if most > self.peak:
            self.peak = most


@dataclass(slots=True)
class Meters:
    """What runs and what is held in one group of a replica."""

    batch: Meter = field(default_factory=Meter)
    kv_bytes: Meter = field(default_factory=Meter)


@dataclass(slots=True)
class RequestWork:
    """What requests ask of one pool: tokens in, tokens out, tokens that are there already.

    Attributes:
        prompt: tokens of prompts.
        output: tokens to make, the first from the prompt.
        cached: tokens of prompts that are not computed.
        rounds: decode steps that make the tokens behind the first.
    """

    prompt: Sequence[int]
    output: Sequence[int]
    cached: Sequence[int]
    rounds: Sequence[int]
