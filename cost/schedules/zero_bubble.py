"""Zero-bubble schedules whose chunks go round: ZB-H1, also interleaved, and ZB-H2 (Qi et al., arXiv 2401.10241)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.plan.layout.pipelines import round_size
from .loops import in_rounds, round_robin
from .tasks import Kind, Order, OrderBuilder, Schedule


def zb_h1(num_stages: int, num_micro_batches: int) -> Schedule:
    """1F1B with the backward phase in two: stage i does the gradients of weights i micro-batches later.

    So every stage holds the activations of p micro-batches, and of equal stages and times a third of the bubble of 1F1B
    is left.
    """
    orders = tuple(_order(num_stages - 1 - i, i, num_micro_batches) for i in range(num_stages))
    return Schedule("zb-h1", num_micro_batches, orders, *round_robin(num_stages, 1))


def interleaved_zb(num_stages: int, num_micro_batches: int, num_chunks: int) -> Schedule:
    """ZB-H1 over chunks, in the rounds of interleaved 1F1B: PyTorch's `ScheduleInterleavedZeroBubble`.

    Stage i is p - 1 - i + (v - 1) r tasks ahead, half of what interleaved 1F1B is, and does the gradients of weights i
    tasks later.
    """
    each = round_size(num_micro_batches, num_stages)
    chunk, micro = in_rounds(np.arange(num_micro_batches * num_chunks), each, num_chunks)
    orders = []
    for i in range(num_stages):
        # As if each of all tasks of a kind were a micro-batch of its own.
        order = _order(num_stages - 1 - i + (num_chunks - 1) * each, i, len(chunk))
        down = chunk[order.micro_batch]
        turned = np.where(order.kind == Kind.FORWARD, down, num_chunks - 1 - down)
        orders.append(replace(order, chunk=turned, micro_batch=micro[order.micro_batch]))
    places = round_robin(num_stages, num_chunks)
    return Schedule("interleaved-zb", num_micro_batches, tuple(orders), *places, chunk_share=1.0 / num_chunks)


def zb_h2(num_stages: int, num_micro_batches: int) -> Schedule:
    """Twice as many forward tasks ahead as ZB-H1, gradients of weights 2 i micro-batches later: 2 p - 1 are held.

    A stage goes on to its next step without waiting for the others, which the optimizer checks afterwards (section 4
    of the paper): of equal stages and times no bubble is left.
    """
    orders = tuple(_order(2 * (num_stages - 1 - i), 2 * i, num_micro_batches) for i in range(num_stages))
    return Schedule("zb-h2", num_micro_batches, orders, *round_robin(num_stages, 1), rolls=True)


def _order(ahead: int, late: int, num_micro_batches: int) -> Order:
    """So many forward tasks, then forward, backward and weights by turns; weights run `late` micro-batches behind."""
    found = OrderBuilder()
    found.add_all(Kind.FORWARD, range(min(ahead, num_micro_batches)))
    for k in range(num_micro_batches):
        if ahead + k < num_micro_batches:
            found.add(Kind.FORWARD, ahead + k)
        found.add(Kind.DGRAD, k)
        if k >= late:
            found.add(Kind.WGRAD, k - late)
    found.add_all(Kind.WGRAD, range(max(num_micro_batches - late, 0), num_micro_batches))
    return found.order()
