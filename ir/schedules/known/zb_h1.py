"""ZB-H1, also interleaved: 1F1B with the backward phase in two (Qi et al., arXiv 2401.10241).

Stage i does the gradients of weights i micro-batches later. So every stage holds the activations of p micro-batches,
and of equal stages and times a third of the bubble of 1F1B is left. Interleaved it runs in the rounds of interleaved
1F1B (PyTorch's `ScheduleInterleavedZeroBubble`): stage i is p - 1 - i + (v - 1) r tasks ahead, half of what that is.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...sizes.expr import Num
from ..kind import EQUAL_ROUNDS, Kind, PipelineShape, ScheduleKind, Task, in_rounds, least


def late_weights(ahead: int, late: int, num: int) -> Iterator[tuple[Kind, int]]:
    """So many forward tasks, then forward, backward and weights by turns; weights run `late` tasks behind.

    >>> [f"{kind.name[0]}{k}" for kind, k in late_weights(1, 1, 3)]
    ['F0', 'F1', 'D0', 'F2', 'D1', 'W0', 'D2', 'W1', 'W2']
    """
    for k in range(min(ahead, num)):
        yield Kind.FORWARD, k
    for k in range(num):
        if ahead + k < num:
            yield Kind.FORWARD, ahead + k
        yield Kind.DGRAD, k
        if k >= late:
            yield Kind.WGRAD, k - late
    for k in range(max(num - late, 0), num):
        yield Kind.WGRAD, k


def order(stage: int, p: int, m: int, v: int) -> Iterator[Task]:
    """As if each of the m v tasks of a kind were a micro-batch of its own."""
    each = m // max(m // p, 1)
    for kind, number in late_weights(p - 1 - stage + (v - 1) * each, stage, m * v):
        chunk, micro = in_rounds(number, each, v)
        yield Task(kind, micro, chunk if kind is Kind.FORWARD else v - 1 - chunk)


def in_flight(shape: PipelineShape, stage: Num) -> Num:
    """Return min(m, p), interleaved min(m v, (v - 1) r + p) / v.

    What the gradients of weights read is kept until they run.
    """
    return least(shape.m * shape.v, (shape.v - 1) * shape.each + shape.p) / shape.v


SCHEDULE = ScheduleKind(
    name="zb-h1",
    help="zero bubble; with --vpp above 1 interleaved too",
    published="2024-01",
    order=order,
    in_flight=in_flight,
    interleaves=True,
    split_backward=True,
    used_at_once=False,
    requirements=(EQUAL_ROUNDS,),
    names={"torch": ("", "InterleavedZeroBubble")},
)
