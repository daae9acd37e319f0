"""ZB-H2: twice as many forward tasks ahead as ZB-H1, gradients of weights 2 i later (Qi et al., arXiv 2401.10241).

Every stage holds 2 p - 1 micro-batches. A stage goes on to its next step without waiting for the others, which the
optimizer checks afterwards (section 4 of the paper): of equal stages and times no bubble is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..kind import ScheduleKind, Task, least
from .zb_h1 import late_weights


def order(stage: int, p: int, m: int, v: int) -> Iterator[Task]:
    """Return the tasks of a stage."""
    return (Task(*task) for task in late_weights(2 * (p - 1 - stage), 2 * stage, m))


SCHEDULE = ScheduleKind(
    name="zb-h2",
    help="zero bubble; twice the activations",
    published="2024-01",
    order=order,
    in_flight=lambda s, stage: least(s.m, 2 * s.p - 1),
    split_backward=True,
    rolls=True,
    used_at_once=False,
)
