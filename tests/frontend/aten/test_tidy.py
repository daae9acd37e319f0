"""What eager PyTorch runs is in the graph, whether anybody reads it or not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import slipstick
from slipstick.ir.graph import Phase
from slipstick.ir.sizes.expr import symbol
from tests.frontend.sums import flops

WIDTH = 16


class Unread(nn.Module):
    """A layer whose result goes nowhere, as that of the last layer of a tower whose features come from before it."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.inner, self.unread = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what one of three layers makes."""
        self.norm(self.unread(torch.relu(self.inner(x))))
        made: Tensor = self.read(x)
        return made


def test_products_that_nobody_reads_are_counted() -> None:
    graph = slipstick.trace(Unread(), torch.rand(4, WIDTH), dynamic={"x": ("batch",)}, phase="train")
    product = symbol("batch") * (2 * WIDTH * WIDTH)
    assert flops(graph) == 3 * product
    # Autograd sees one of them: its weight alone has a gradient, and the input needs none.
    assert flops(graph, Phase.BACKWARD) == product
    # The norm behind them is no product and goes, with its weight and bias.
    assert graph.num_parameters == 3 * WIDTH * WIDTH
