"""Factories that the tests of the command line name: one that works, and some that do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Perceptron(nn.Module):
    """Embedding, one hidden layer, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(32, 16), nn.Linear(16, 64), nn.Linear(64, 32)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.down(torch.relu(self.up(self.embed(ids))))
        return logits


class Masked(Perceptron):
    """Takes a mask, and adds a table of 64 positions to as many."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(64, 16))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        x = (self.embed(ids) + self.positions) * mask[..., None]
        logits: Tensor = self.down(torch.relu(self.up(x)))
        return logits


class Rows(nn.Linear):
    """Rows of features, no sequence."""

    def __init__(self) -> None:
        super().__init__(16, 16)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input)


def factory() -> nn.Module:
    return Perceptron()


def broken() -> nn.Module:
    raise RuntimeError("no such luck")


def no_module() -> int:
    return 3


def squared(out: Tensor) -> Tensor:
    return out.float().pow(2).mean()
