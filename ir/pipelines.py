"""Pipeline schedules by name: what each asks of a plan, and where its chunks stand."""

from __future__ import annotations

from .errors import PlanError, UnknownNameError

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


def check_schedule(schedule: str, num_micro_batches: int, pp: int, vpp: int) -> None:
    """Check that a schedule can run so many micro-batches on so many stages and chunks.

    UnknownNameError for a schedule that does not exist; PlanError with the nearest legal values for one that cannot.
    """
    if schedule not in SCHEDULES:
        raise UnknownNameError.of("pipeline schedule", schedule, SCHEDULES)
    if pp == 1 and schedule in SPLIT_BACKWARD:
        raise PlanError(f"schedule {schedule} fills the bubble between pipeline stages, pp=1 has none; legal pp: 2, 4")
    if schedule in V_SHAPED:
        _check_chunks_of_a_v(schedule, num_micro_batches, pp, vpp)
    elif vpp > 1 and schedule not in INTERLEAVED:
        raise PlanError(
            f"vpp={vpp} interleaves the schedules {' and '.join(INTERLEAVED)}, not {schedule}; legal vpp: 1"
        )
    elif vpp > 1:
        _check_rounds(num_micro_batches, pp, vpp)
    if schedule in BIDIRECTIONAL:
        _check_both_ways(schedule, num_micro_batches, pp)


def _check_chunks_of_a_v(schedule: str, num_micro_batches: int, pp: int, vpp: int) -> None:
    """DualPipeV overlaps from the start what its 2 p chunks do; the reference implementation asks for as many."""
    if vpp != 2:
        raise PlanError(f"schedule {schedule} puts two chunks on every stage, not vpp={vpp}; legal vpp: 2")
    if schedule == "dualpipe-v" and num_micro_batches < 2 * pp:
        raise PlanError(
            f"schedule {schedule} needs a micro-batch a chunk, 2 x pp={pp} = {2 * pp}; "
            f"gbs / (mbs x dp) = {num_micro_batches}; nearest: {2 * pp} micro-batches"
        )


def _check_rounds(num_micro_batches: int, pp: int, vpp: int) -> None:
    """Interleaving deals micro-batches out in equal rounds of at least one a stage."""
    if pp == 1:
        raise PlanError(f"vpp={vpp} interleaves pipeline stages, pp=1 has none; legal vpp: 1, or pp of 2 and more")
    if not round_size(num_micro_batches, pp):
        near = (num_micro_batches - 1, num_micro_batches + 1)
        below = next(n for n in range(near[0], 0, -1) if round_size(n, pp))
        above = next(n for n in range(near[1], num_micro_batches + pp + 1) if round_size(n, pp))
        raise PlanError(
            f"vpp={vpp} needs micro-batches in equal rounds of pp={pp} or more; gbs / (mbs x dp) = {num_micro_batches} "
            f"does not divide by {num_micro_batches // pp} rounds; nearest: {below} or {above} micro-batches, or vpp=1"
        )


def _check_both_ways(schedule: str, num_micro_batches: int, pp: int) -> None:
    """DualPipe: arXiv 2412.19437, section 3.2.1; the reference implementation asks for the same."""
    if pp % 2:
        raise PlanError(f"schedule {schedule} needs an even number of stages, not pp={pp}; nearest: {pp - 1}, {pp + 1}")
    if num_micro_batches < 2 * pp:
        raise PlanError(
            f"schedule {schedule} needs two micro-batches a stage, 2 x pp={pp} = {2 * pp}; "
            f"gbs / (mbs x dp) = {num_micro_batches}; nearest: {2 * pp} micro-batches"
        )
    if num_micro_batches % 2:
        raise PlanError(
            f"schedule {schedule} sends half of the micro-batches each way; gbs / (mbs x dp) = {num_micro_batches} "
            f"is odd; nearest: {num_micro_batches - 1} or {num_micro_batches + 1} micro-batches"
        )
