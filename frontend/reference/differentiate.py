"""Gradients of a reference by torch's autograd, for the backward ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Forward = Callable[[Sequence[Tensor]], Tensor]


def gradients(forward: Forward, inputs: Sequence[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    """Return the gradient of each floating input of a function with one result; zeros where nothing flows."""
    with torch.enable_grad():
        leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
        wanted = [t for t in leaves if t.requires_grad]
        found = torch.autograd.grad(forward(leaves), wanted, grad, allow_unused=True)
    given = iter(found)
    made = [next(given) if t.requires_grad else None for t in leaves]
    return tuple(torch.zeros_like(t) if g is None else g for t, g in zip(leaves, made, strict=True))
