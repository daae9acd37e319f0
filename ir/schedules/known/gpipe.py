"""GPipe: all forward tasks, then all backward tasks (Huang et al., arXiv 1811.06965)."""

from __future__ import annotations

from collections.abc import Iterator

from ..kind import ClosedCase, Kind, ScheduleKind, Task, least


def order(stage: int, p: int, m: int, v: int) -> Iterator[Task]:
    """Yield the tasks of a stage, the same of every one."""
    yield from (Task(Kind.FORWARD, k) for k in range(m))
    yield from (Task(Kind.BACKWARD, k) for k in range(m))


def closed() -> tuple[ClosedCase, ...]:
    """Return the one form."""
    from ..closed.forms import gpipe_s

    return (ClosedCase(lambda s: s.v == 1, lambda line, s: gpipe_s(line, s.m)),)


SCHEDULE = ScheduleKind(
    name="gpipe",
    help="all forward tasks first",
    published="2018-11",
    order=order,
    # All m; on a single stage nothing waits for others, and each micro-batch runs backward before the next begins.
    in_flight=lambda s, stage: 1 + least(s.p - 1, 1) * (s.m - 1),
    used_at_once=False,
    closed=closed,
    names={"torch": ("GPipe", ""), "nanotron": ("afab", "")},
)
