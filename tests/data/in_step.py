"""Models with two lists of modules: layers spread over both, and layers beside a tower that does not run."""

from __future__ import annotations

from torch import Tensor, nn

VOCAB, HIDDEN = 160, 64


class InStep(nn.Module):
    """A layer is one member of each of two lists."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.first = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.second = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for one, two in zip(self.first, self.second, strict=True):
            x = two(one(x))
        logits: Tensor = self.head(x)
        return logits


class BesideATower(nn.Module):
    """The tower is longer than the layers, and takes no part in the text that the layers read."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.tower = nn.ModuleList(nn.Linear(HIDDEN, 2 * HIDDEN) for _ in range(5))
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh()) for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits


def beside_a_tower() -> nn.Module:
    return BesideATower()


def in_step() -> nn.Module:
    return InStep()
