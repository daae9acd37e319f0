"""ZB-V: two chunks a stage, the model down the stages and up again (Qi et al., arXiv 2405.15362, figure 5)."""

from __future__ import annotations

import numpy as np

from .tasks import Index, Kind, Order, OrderBuilder, Schedule


def vee(num_stages: int) -> tuple[Index, Index]:
    """Return the stage and the chunk behind each chunk: stage i has chunks i and 2 p - 1 - i of the model."""
    stages = np.arange(num_stages)
    next_stage = np.stack([np.minimum(stages + 1, num_stages - 1), stages - 1], axis=1)
    next_chunk = np.stack([(stages == num_stages - 1).astype(np.int64), np.ones(num_stages, dtype=np.int64)], axis=1)
    next_chunk[0, 1] = -1
    return next_stage, next_chunk


def zb_v(num_stages: int, num_micro_batches: int) -> Schedule:
    """The order that PyTorch runs as `ScheduleZBVZeroBubble`.

    With fewer than 2 p - 1 micro-batches, what there is of it.
    Every stage holds the activations of p micro-batches at most. As in ZB-H2, stages do not wait for one another at
    the end of a step.
    """
    most = max(2 * num_stages - 1, num_micro_batches)
    orders = tuple(_order(num_stages, i, most, num_micro_batches) for i in range(num_stages))
    return Schedule("zb-v", num_micro_batches, orders, *vee(num_stages), chunk_share=0.5, rolls=True)


class _Counted(OrderBuilder):
    """An order whose tasks of one kind and chunk take micro-batches in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.done = dict.fromkeys([(kind, chunk) for kind in Kind for chunk in (0, 1)], 0)

    def next(self, chunk: int, *kinds: Kind) -> None:
        """Append the next task of each kind."""
        for kind in kinds:
            self.add(kind, self.done[kind, chunk], chunk)
            self.done[kind, chunk] += 1


def _order(num_stages: int, stage: int, most: int, num_micro_batches: int) -> Order:
    found = _Counted()
    _warm_up(found, num_stages, stage)
    while found.done[Kind.FORWARD, 1] < most:
        if found.done[Kind.FORWARD, 0] < most:
            found.next(0, Kind.FORWARD)
        found.next(0, Kind.DGRAD, Kind.WGRAD)
        found.next(1, Kind.FORWARD, Kind.DGRAD, Kind.WGRAD)
    _cool_down(found, num_stages, stage, most)
    return found.order(num_micro_batches)


def _warm_up(found: _Counted, num_stages: int, stage: int) -> None:
    for _ in range(2 * (num_stages - stage) - 1):
        found.next(0, Kind.FORWARD)
    for _ in range(stage):
        found.next(1, Kind.FORWARD)
        found.next(0, Kind.FORWARD)
    for _ in range(num_stages - stage):
        found.next(1, Kind.FORWARD, Kind.DGRAD, Kind.WGRAD)


def _cool_down(found: _Counted, num_stages: int, stage: int, most: int) -> None:
    for _ in range(stage):
        found.next(0, Kind.DGRAD)
        found.next(1, Kind.DGRAD)
    for _ in range(num_stages - stage):
        found.next(0, Kind.DGRAD, Kind.WGRAD)
    for chunk in (1, 0):
        while found.done[Kind.WGRAD, chunk] < most:
            found.next(chunk, Kind.WGRAD)
