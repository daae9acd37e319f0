"""Small models that tests watch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bigram(nn.Module):
    """The next token from this one, through one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 64)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.down(nn.functional.gelu(self.up(self.embed(ids))))
        return out


def loss_of(net: nn.Module, batch: int = 4, seq: int = 8) -> Tensor:
    ids = torch.randint(0, 64, (batch, seq))
    return nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
