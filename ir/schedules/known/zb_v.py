"""ZB-V: two chunks a stage, the model down the stages and up again (Qi et al., arXiv 2405.15362, figure 5).

The order is the one that PyTorch runs as `ScheduleZBVZeroBubble`; with fewer than 2 p - 1 micro-batches, what there is
of it. Every stage holds the activations of p micro-batches at most. As in ZB-H2, stages do not wait for one another at
the end of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..kind import Kind, ScheduleKind, Task, down_and_up, least


class _Counted:
    """An order whose tasks of one kind and chunk take micro-batches in turn."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.done = dict.fromkeys([(kind, chunk) for kind in Kind for chunk in (0, 1)], 0)

    def next(self, chunk: int, *kinds: Kind) -> None:
        """Append the next task of each kind."""
        for kind in kinds:
            self.tasks.append(Task(kind, self.done[kind, chunk], chunk))
            self.done[kind, chunk] += 1


def order(stage: int, p: int, m: int, v: int) -> Iterator[Task]:
    """Return the tasks of a stage, in steps that take up to 2 p - 1 micro-batches, whether they are there or not."""
    found, most = _Counted(), max(2 * p - 1, m)
    _warm_up(found, p, stage)
    while found.done[Kind.FORWARD, 1] < most:
        if found.done[Kind.FORWARD, 0] < most:
            found.next(0, Kind.FORWARD)
        found.next(0, Kind.DGRAD, Kind.WGRAD)
        found.next(1, Kind.FORWARD, Kind.DGRAD, Kind.WGRAD)
    _cool_down(found, p, stage, most)
    return (task for task in found.tasks if task.micro_batch < m)


def _warm_up(found: _Counted, p: int, stage: int) -> None:
    for _ in range(2 * (p - stage) - 1):
        found.next(0, Kind.FORWARD)
    for _ in range(stage):
        found.next(1, Kind.FORWARD)
        found.next(0, Kind.FORWARD)
    for _ in range(p - stage):
        found.next(1, Kind.FORWARD, Kind.DGRAD, Kind.WGRAD)


def _cool_down(found: _Counted, p: int, stage: int, most: int) -> None:
    for _ in range(stage):
        found.next(0, Kind.DGRAD)
        found.next(1, Kind.DGRAD)
    for _ in range(p - stage):
        found.next(0, Kind.DGRAD, Kind.WGRAD)
    for chunk in (1, 0):
        while found.done[Kind.WGRAD, chunk] < most:
            found.next(chunk, Kind.WGRAD)


SCHEDULE = ScheduleKind(
    name="zb-v",
    help="zero bubble; two chunks a stage",
    published="2024-05",
    order=order,
    # Two chunks of half the stage's layers; at most p together.
    in_flight=lambda s, stage: (least(s.m, 2 * s.p - 1 - stage) + least(s.m, stage + 1)) / 2,
    places=down_and_up,
    chunks=2,
    split_backward=True,
    rolls=True,
    names={"torch": ("ZBVZeroBubble", "")},
)
