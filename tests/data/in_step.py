"""A model whose layers are spread over two lists of modules."""

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


def in_step() -> nn.Module:
    return InStep()
