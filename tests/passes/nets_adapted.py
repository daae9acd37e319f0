"""Two linear layers: as they are, and frozen with adapters as PEFT builds them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Adapted(nn.Module):
    """A frozen linear layer, and beside it a product of two narrow matrices, scaled."""

    def __init__(self, inner: int, outer: int, rank: int = 8) -> None:
        super().__init__()
        self.base = nn.Linear(inner, outer, bias=False)
        self.base.requires_grad_(requires_grad=False)
        self.lora_A, self.lora_B = nn.Linear(inner, rank, bias=False), nn.Linear(rank, outer, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_B(self.lora_A(x)) * 2.0  # type: ignore[no-any-return]


class Net(nn.Module):
    """Two layers with a function between, and a loss."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.nn.functional.silu(self.first(x)))
        return out.square().mean()


def plain() -> nn.Module:
    return Net(nn.Linear(48, 96, bias=False), nn.Linear(96, 32, bias=False))


def with_adapters() -> nn.Module:
    return Net(Adapted(48, 96), Adapted(96, 32))
