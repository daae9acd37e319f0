"""Schedules whose chunks go round: GPipe, 1F1B, interleaved 1F1B.

GPipe: Huang et al., arXiv 1811.06965. 1F1B and interleaved 1F1B: Narayanan et al., arXiv 2104.04473.
"""

from __future__ import annotations

import numpy as np

from ...ir.plan.layout.pipelines import round_size
from .tasks import Index, Kind, Order, OrderBuilder, Schedule


def round_robin(num_stages: int, num_chunks: int) -> tuple[Index, Index]:
    """Return the stage and the chunk behind each chunk, as (stage, chunk): chunk c of stage i is number c p + i."""
    place = np.arange(num_stages * num_chunks).reshape(num_chunks, num_stages).T
    behind = place + 1
    last = behind == num_stages * num_chunks
    return np.where(last, -1, behind % num_stages), np.where(last, -1, behind // num_stages)


def gpipe(num_stages: int, num_micro_batches: int) -> Schedule:
    """All forward tasks, then all backward tasks."""
    found = OrderBuilder()
    found.add_all(Kind.FORWARD, range(num_micro_batches))
    found.add_all(Kind.BACKWARD, range(num_micro_batches))
    orders = (found.order(),) * num_stages
    return Schedule("gpipe", num_micro_batches, orders, *round_robin(num_stages, 1))


def one_f_one_b(num_stages: int, num_micro_batches: int) -> Schedule:
    """Stage i runs p - 1 - i forward tasks, then forward and backward by turns, then what backward tasks are left."""
    orders = tuple(_by_turns(num_stages - 1 - i, num_micro_batches) for i in range(num_stages))
    return Schedule("1f1b", num_micro_batches, orders, *round_robin(num_stages, 1))


def interleaved(num_stages: int, num_micro_batches: int, num_chunks: int) -> Schedule:
    """Rounds of r micro-batches through one chunk after the other; stage i is 2 (p - 1 - i) + (v - 1) r tasks ahead.

    r is p, or a little more where p does not divide the micro-batches: see `round_size`.
    """
    each = round_size(num_micro_batches, num_stages)
    warm = [2 * (num_stages - 1 - i) + (num_chunks - 1) * each for i in range(num_stages)]
    size = (each, num_micro_batches, num_chunks)
    orders = tuple(_interleaved_order(min(w, num_micro_batches * num_chunks), *size) for w in warm)
    places = round_robin(num_stages, num_chunks)
    return Schedule("interleaved", num_micro_batches, orders, *places, chunk_share=1.0 / num_chunks)


def in_rounds(number: Index, each: int, num_chunks: int) -> tuple[Index, Index]:
    """Return the chunk and the micro-batch of forward tasks by their number, in rounds of so many micro-batches."""
    return number % (each * num_chunks) // each, number // (each * num_chunks) * each + number % each


def _by_turns(warm: int, num_micro_batches: int) -> Order:
    found = OrderBuilder()
    ahead = min(warm, num_micro_batches)
    found.add_all(Kind.FORWARD, range(ahead))
    for k in range(num_micro_batches - ahead):
        found.add(Kind.FORWARD, ahead + k)
        found.add(Kind.BACKWARD, k)
    found.add_all(Kind.BACKWARD, range(num_micro_batches - ahead, num_micro_batches))
    return found.order()


def _interleaved_order(warm: int, each: int, num_micro_batches: int, num_chunks: int) -> Order:
    """Forward tasks 0 to w - 1, then by turns, then what backward tasks are left; tables for many tasks at once."""
    total = num_micro_batches * num_chunks
    number = np.arange(total)
    chunk, micro = in_rounds(number, each, num_chunks)
    # A forward task stands at 2k once tasks alternate, a backward task right behind the forward task w later.
    forward_at = np.where(number < warm, number, 2 * number - warm)
    backward_at = np.where(number + warm < total, 2 * number + warm + 1, number + total)
    turn = np.argsort(np.concatenate([forward_at, backward_at]), kind="stable")
    kind = np.repeat([int(Kind.FORWARD), int(Kind.BACKWARD)], total)[turn]
    chunks = np.concatenate([chunk, num_chunks - 1 - chunk])[turn]
    return Order(chunks, np.concatenate([micro, micro])[turn], kind, np.zeros(2 * total, dtype=bool))
