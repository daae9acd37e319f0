"""1F1B and interleaved 1F1B (Harlap et al., arXiv 1806.03377; Narayanan et al., arXiv 2104.04473).

A stage runs some forward tasks ahead, then forward and backward by turns, then what backward tasks are left. Stage i
of p is p - 1 - i tasks ahead; with v chunks, in rounds of r micro-batches through one chunk after the other,
2 (p - 1 - i) + (v - 1) r.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...sizes.expr import Num
from ..kind import EQUAL_ROUNDS, ClosedCase, Kind, PipelineShape, ScheduleKind, Task, in_rounds, least


def order(stage: int, p: int, m: int, v: int) -> Iterator[Task]:
    """Yield the tasks of a stage, forward and backward ones each in rounds."""
    each = m // max(m // p, 1)
    ahead = min(p - 1 - stage if v == 1 else 2 * (p - 1 - stage) + (v - 1) * each, m * v)
    turns = [in_rounds(number, each, v) for number in range(m * v)]
    for number in range(m * v + ahead):
        if number < m * v:
            chunk, micro = turns[number]
            yield Task(Kind.FORWARD, micro, chunk)
        if number >= ahead:
            chunk, micro = turns[number - ahead]
            yield Task(Kind.BACKWARD, micro, v - 1 - chunk)


def in_flight(shape: PipelineShape, stage: Num) -> Num:
    """Return min(m, p - i); interleaved min(m v, 2 (p - i - 1) + (v - 1) r + 1) / v, of the stage's layers 1/v each.

    Korthikanti et al., arXiv 2205.05198.
    """
    behind, v = shape.p - stage, shape.v
    return least(shape.m * v, behind + least(v - 1, 1) * (behind - 1 + (v - 1) * shape.each)) / v


def closed() -> tuple[ClosedCase, ...]:
    """Return the forms of one chunk, of several in rounds of p, and of both where some stages run all forward first.

    The last of these is stage p - m, and in a single round of several chunks (p - 1) // 2.
    """
    from ..closed.forms import one_f_one_b_s
    from ..closed.rounds import interleaved_s

    return (
        ClosedCase(lambda s: (s.v == 1) & (s.m > s.p), lambda line, s: one_f_one_b_s(line, s.m, few=False)),
        ClosedCase(lambda s: s.v == 1, lambda line, s: one_f_one_b_s(line, s.m, few=True), lambda s: s.p - s.m),
        ClosedCase(lambda s: (s.m % s.p == 0) & (s.m >= 2 * s.p), interleaved_s),
        ClosedCase(lambda s: s.m % s.p == 0, interleaved_s, lambda s: (s.p - 1) // 2),
    )


SCHEDULE = ScheduleKind(
    name="1f1b",
    help="interleaved when --vpp > 1",
    published="2018-06",
    order=order,
    in_flight=in_flight,
    interleaves=True,
    alias="interleaved",
    requirements=(EQUAL_ROUNDS,),
    closed=closed,
    names={
        "torch": ("1F1B", "Interleaved1F1B"),
        "megatron": ("1F1B", "interleaved with virtual stages"),
        "nanotron": ("1f1b", ""),
    },
)
