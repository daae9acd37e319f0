"""What a pipeline schedule is: its facts, the order of its tasks, what it asks of a plan, what a stage holds of it.

Nothing here needs numpy. What takes a `PipelineShape` is written with operators, so that it holds of numbers and of
columns alike: `&` and `|` for both and either, `least` for the smaller of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..records import dataclass
from ..sizes.expr import Num

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .closed.line import Line

Flag: TypeAlias = "bool | NDArray[np.bool_]"
# The stages that hold each chunk, in the order of the model: one, or one of each copy.
Places: TypeAlias = Sequence[tuple[int, ...]]


class Kind(IntEnum):
    """What a task does with one micro-batch in one chunk; `BACKWARD` is `DGRAD` and `WGRAD` in one."""

    FORWARD = 0
    BACKWARD = 1
    DGRAD = 2
    WGRAD = 3


class Task(NamedTuple):
    """One task of a stage; `joined` with the next, both start and hand on their results together (DualPipe)."""

    kind: Kind
    micro_batch: int
    chunk: int = 0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """m micro-batches on p stages of v chunks: numbers, or columns of whole numbers."""

    m: Num
    p: Num
    v: Num = 1

    def of(self, rows: NDArray[np.intp]) -> PipelineShape:
        """Return some rows of its columns."""
        m, p, v = (one if isinstance(one, (int, float)) else one[rows] for one in (self.m, self.p, self.v))
        return PipelineShape(m, p, v)

    @property
    def rounds(self) -> Num:
        """Rounds in which micro-batches go through interleaved chunks: max(1, m // p), fewer than p are one round."""
        return self.m // least(self.m, self.p)

    @property
    def each(self) -> Num:
        """Micro-batches of a round: p, or a little more where rounds are equal then.

        >>> [PipelineShape(m, 4).each for m in (8, 10, 3)]
        [4, 5, 3]
        """
        return self.m // self.rounds


def least(a: Num, b: Num) -> Num:
    """Return the smaller of two whole numbers, or of each two of columns.

    >>> least(3, 5), least(5, 3)
    (3, 3)
    """
    return (a + b - (a - b).__abs__()) // 2


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a schedule asks of its run: whether that is broken, and what is said then, with the nearest legal values."""

    broken: Callable[[PipelineShape], Flag]
    told: Callable[[PipelineShape], str]


@dataclass(frozen=True, slots=True)
class ClosedCase:
    """A closed form of the seconds of a step, for the pipelines of several stages for which it holds.

    Attributes:
        holds: for which it does, of those for which no case before it does.
        seconds: of the stages of many plans in a row, with the times of one chunk; v is one number where all have it.
        cut: the stage at which rows of stages are cut, so that it is a run of its own; None for none.
    """

    holds: Callable[[PipelineShape], Flag]
    seconds: Callable[[Line, PipelineShape], NDArray[np.float64]]
    cut: Callable[[PipelineShape], Num] | None = None


def round_robin(p: int, v: int) -> Places:
    """Chunk c of stage i is number c p + i.

    >>> round_robin(2, 2)
    ((0,), (1,), (0,), (1,))
    """
    return tuple((k % p,) for k in range(p * v))


def down_and_up(p: int, v: int) -> Places:
    """The model goes down the stages and up again: stage i has chunks i and 2 p - 1 - i.

    >>> down_and_up(2, 2)
    ((0,), (1,), (1,), (0,))
    """
    return tuple((min(k, 2 * p - 1 - k),) for k in range(2 * p))


def from_both_ends(p: int, v: int) -> Places:
    """Two copies of the model: stage i has chunk i of one and p - 1 - i of the other.

    >>> from_both_ends(2, 1)
    ((0, 1), (1, 0))
    """
    return tuple((k, p - 1 - k) for k in range(p))


# eq=False: a schedule is itself, and is found in tables of results by that.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleKind:
    """A pipeline schedule, all of it.

    Attributes:
        name: its word in plans.
        help: what `--help` says behind its name.
        published: year and month of what describes it; lists of schedules run by it.
        order: (stage, p, m, v) -> the tasks of a stage one behind the other; with copies, chunks are one of each.
        in_flight: (shape, stage) -> how many micro-batches' activations a stage holds at most, in all that it holds.
        places: (p, v) -> the stages of each chunk.
        chunks: chunks a stage; any number where it is interleaved.
        interleaves: whether it runs with several chunks a stage, in rounds of micro-batches: see `PipelineShape.each`.
        alias: its word in plans with several chunks a stage, if it has one.
        copies: copies of the model, each of which runs its part of the micro-batches.
        split_backward: whether the gradients of weights are tasks of their own.
        rolls: whether a stage starts its next step as soon as it is through with this one.
        used_at_once: whether activations of the end of the model are used as soon as they are there, one micro-batch
            at a time.
        filling_rounds: rounds of micro-batches after which a step grows evenly with more.
        requirements: what it asks beside what follows from these facts, in the order in which it is told.
        closed: the closed forms of its step; None where it is run task by task.
        names: framework -> what it is called there with one chunk and interleaved; empty where it is not there.
    """

    name: str
    help: str
    published: str
    order: Callable[[int, int, int, int], Iterable[Task]]
    in_flight: Callable[[PipelineShape, Num], Num]
    places: Callable[[int, int], Places] = round_robin
    chunks: int = 1
    interleaves: bool = False
    alias: str = ""
    copies: int = 1
    split_backward: bool = False
    rolls: bool = False
    used_at_once: bool = True
    filling_rounds: int = 3
    requirements: tuple[Requirement, ...] = ()
    closed: Callable[[], tuple[ClosedCase, ...]] | None = None
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def chunks_of(self, vpp: int) -> int:
        """Return the chunks a stage: those that are the schedule's own need not be asked for."""
        return self.chunks if vpp == 1 else vpp

    def placed(self, p: int, v: int) -> Places:
        """Return the stages that hold each chunk; one stage holds all of one copy."""
        return self.places(p, v) if p > 1 else round_robin(p, v)

    def name_in(self, framework: str, vpp: int) -> str:
        """Return what a framework calls it with so many chunks; empty where it does not have it."""
        return self.names.get(framework, ("", ""))[self.interleaves and vpp > 1]


# Interleaved chunks take micro-batches in equal rounds (PyTorch's `ScheduleInterleaved1F1B`).
EQUAL_ROUNDS = Requirement(
    lambda s: (s.v > 1) & (s.m % s.rounds != 0),
    lambda s: (
        f"vpp={s.v} needs micro-batches in equal rounds of pp={s.p} or more; gbs / (mbs x dp) = {s.m} "
        f"does not divide by {s.rounds} rounds; nearest: {_near(s, -1)} or {_near(s, 1)} micro-batches, or vpp=1"
    ),
)


def _near(shape: PipelineShape, step: int) -> Num:
    """The next number of micro-batches that makes equal rounds, in steps of one up or down."""
    near = PipelineShape(shape.m + step, shape.p)
    return near.m if near.m % near.rounds == 0 else _near(near, step)


def in_rounds(number: int, each: int, v: int) -> tuple[int, int]:
    """Return the chunk and the micro-batch of the forward task of a number, in rounds of so many micro-batches.

    >>> [in_rounds(k, 2, 2) for k in range(5)]
    [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
    """
    run, place = divmod(number, each * v)
    return place // each, run * each + place % each
