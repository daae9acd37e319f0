"""The clock of ops: every op is in one class, norms with their backward, and nothing takes negative time."""

import torch
from torch import nn

from slipstick.ir.ops import OpClass
from slipstick.validation.measure.device import Device
from slipstick.validation.measure.step import OpClock


def _run(model: nn.Module, clock: OpClock) -> None:
    x = torch.ones(4, 8, requires_grad=True)
    with clock:
        model(x).sum().backward()


def test_products_and_norms_are_told_apart_in_both_directions() -> None:
    norm = nn.RMSNorm(8)
    clock = OpClock(Device("cpu", 1))
    clock.watch_norm(norm)
    _run(nn.Sequential(nn.Linear(8, 8, bias=False), norm, nn.Linear(8, 8, bias=False)), clock)
    assert {OpClass.MATMUL, OpClass.NORM, OpClass.ELEMENTWISE} <= set(clock.times_s)
    assert all(t >= 0 for t in clock.times_s.values())


def test_the_backward_of_a_norm_ends_at_its_input() -> None:
    # Only the norm runs: what is no norm is the sum, its backward, and gradients that are put into leaves.
    norm = nn.LayerNorm(8)
    clock = OpClock(Device("cpu", 1))
    clock.watch_norm(norm)
    _run(norm, clock)
    assert OpClass.MATMUL not in clock.times_s
    assert OpClass.NORM in clock.times_s
