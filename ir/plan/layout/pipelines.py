"""Pipeline schedules by name: what each asks of a plan, and where its chunks stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import PlanError, UnknownNameError

SCHEDULES = ("1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v")
# The model goes down the stages and up again: chunks k and 2 p - 1 - k stand on stage k.
V_SHAPED = ("zb-v", "dualpipe-v")
# Micro-batches enter at both ends: every stage has a chunk of each of two copies of the model.
BIDIRECTIONAL = ("dualpipe",)
# The gradients of weights are a task of their own.
SPLIT_BACKWARD = ("zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v")
# With several chunks a stage micro-batches come in rounds: interleaved 1F1B and interleaved zero bubble.
INTERLEAVED = ("1f1b", "zb-h1")


def chunks_of(schedule: str, vpp: int) -> int:
    """Return the chunks a stage: a V has two, which need not be asked for.

    >>> chunks_of("zb-v", 1), chunks_of("1f1b", 3)
    (2, 3)
    """
    return 2 if schedule in V_SHAPED and vpp == 1 else vpp


def round_size(num_micro_batches: int, pp: int) -> int:
    """Return the micro-batches of a round of interleaved chunks: p, or a little more where rounds are equal then.

    Of m micro-batches there are max(1, m // p) rounds, so fewer than p are one round (PyTorch's
    `ScheduleInterleaved1F1B`); 0 where m does not divide by that.

    >>> round_size(8, 4), round_size(10, 4), round_size(3, 4), round_size(11, 4)
    (4, 5, 3, 0)
    """
    rounds = max(1, num_micro_batches // pp)
    return 0 if num_micro_batches % rounds else num_micro_batches // rounds


def places(schedule: str, pp: int, vpp: int) -> tuple[tuple[int, ...], ...]:
    """Return the stages that hold each chunk, in the order of the model.

    >>> places("1f1b", 2, 2), places("zb-v", 2, 2), places("dualpipe", 2, 1)
    (((0,), (1,), (0,), (1,)), ((0,), (1,), (1,), (0,)), ((0, 1), (1, 0)))
    """
    if schedule in V_SHAPED and pp > 1:
        return tuple((min(k, 2 * pp - 1 - k),) for k in range(2 * pp))
    if schedule in BIDIRECTIONAL and pp > 1:
        return tuple((k, pp - 1 - k) for k in range(pp))
    return tuple((k % pp,) for k in range(pp * vpp))


@dataclass(frozen=True, slots=True)
class Run:
    """So many micro-batches on so many stages of so many chunks."""

    schedule: str
    num: int
    pp: int
    vpp: int


@dataclass(frozen=True, slots=True)
class Rule:
    """What a schedule asks of its run: whether that is broken, and what is said then."""

    broken: Callable[[Run], bool]
    told: Callable[[Run], str]


def _around(run: Run) -> str:
    """The nearest numbers of micro-batches that make equal rounds."""
    below = next(n for n in range(run.num - 1, 0, -1) if round_size(n, run.pp))
    above = next(n for n in range(run.num + 1, run.num + run.pp + 1) if round_size(n, run.pp))
    return f"{below} or {above} micro-batches"


# DualPipe: arXiv 2412.19437, section 3.2.1. DualPipeV overlaps from the start what its 2 p chunks do. The reference
# implementation asks for as many micro-batches.
RULES = (
    Rule(
        lambda r: r.pp == 1 and r.schedule in SPLIT_BACKWARD,
        lambda r: f"schedule {r.schedule} fills the bubble between pipeline stages, pp=1 has none; legal pp: 2, 4",
    ),
    Rule(
        lambda r: r.schedule in V_SHAPED and r.vpp != 2,
        lambda r: f"schedule {r.schedule} puts two chunks on every stage, not vpp={r.vpp}; legal vpp: 2",
    ),
    Rule(
        lambda r: r.schedule == "dualpipe-v" and r.num < 2 * r.pp,
        lambda r: (
            f"schedule {r.schedule} needs a micro-batch a chunk, 2 x pp={r.pp} = {2 * r.pp}; "
            f"gbs / (mbs x dp) = {r.num}; nearest: {2 * r.pp} micro-batches"
        ),
    ),
    Rule(
        lambda r: r.vpp > 1 and r.schedule not in (*V_SHAPED, *INTERLEAVED),
        lambda r: f"vpp={r.vpp} interleaves the schedules {' and '.join(INTERLEAVED)}, not {r.schedule}; legal vpp: 1",
    ),
    Rule(
        lambda r: r.vpp > 1 and r.schedule in INTERLEAVED and r.pp == 1,
        lambda r: f"vpp={r.vpp} interleaves pipeline stages, pp=1 has none; legal vpp: 1, or pp of 2 and more",
    ),
    Rule(
        lambda r: r.vpp > 1 and r.schedule in INTERLEAVED and not round_size(r.num, r.pp),
        lambda r: (
            f"vpp={r.vpp} needs micro-batches in equal rounds of pp={r.pp} or more; gbs / (mbs x dp) = {r.num} "
            f"does not divide by {r.num // r.pp} rounds; nearest: {_around(r)}, or vpp=1"
        ),
    ),
    Rule(
        lambda r: r.schedule in BIDIRECTIONAL and r.pp % 2 == 1,
        lambda r: (
            f"schedule {r.schedule} needs an even number of stages, not pp={r.pp}; nearest: {r.pp - 1}, {r.pp + 1}"
        ),
    ),
    Rule(
        lambda r: r.schedule in BIDIRECTIONAL and r.num < 2 * r.pp,
        lambda r: (
            f"schedule {r.schedule} needs two micro-batches a stage, 2 x pp={r.pp} = {2 * r.pp}; "
            f"gbs / (mbs x dp) = {r.num}; nearest: {2 * r.pp} micro-batches"
        ),
    ),
    Rule(
        lambda r: r.schedule in BIDIRECTIONAL and r.num % 2 == 1,
        lambda r: (
            f"schedule {r.schedule} sends half of the micro-batches each way; gbs / (mbs x dp) = {r.num} "
            f"is odd; nearest: {r.num - 1} or {r.num + 1} micro-batches"
        ),
    ),
)


def check_schedule(schedule: str, num_micro_batches: int, pp: int, vpp: int) -> None:
    """Check that a schedule can run so many micro-batches on so many stages and chunks.

    UnknownNameError for a schedule that does not exist; PlanError with the nearest legal values for one that cannot.
    """
    if schedule not in SCHEDULES:
        raise UnknownNameError.of("pipeline schedule", schedule, SCHEDULES)
    run = Run(schedule, num_micro_batches, pp, vpp)
    for rule in RULES:
        if rule.broken(run):
            raise PlanError(rule.told(run))


def can_run(schedule: str, num_micro_batches: int, pp: int, vpp: int) -> bool:
    """Whether a schedule can run so many micro-batches on so many stages and chunks, as `check_schedule` has it."""
    run = Run(schedule, num_micro_batches, pp, vpp)
    return not any(rule.broken(run) for rule in RULES)
