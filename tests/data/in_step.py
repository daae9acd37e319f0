"""Models that run lists of modules in ways of their own: in step, beside a tower, by number, behind every third."""

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


class ByNumber(nn.Module):
    """Layers are looked up by numbers that the code knows; with `rounds`, all of them several times."""

    def __init__(self, rounds: int = 1) -> None:
        super().__init__()
        self.rounds = rounds
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(6))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for k in range(6 * self.rounds):
            x = self.layers[k % 6](x)
        logits: Tensor = self.head(x)
        return logits


class EveryThird(nn.Module):
    """A module of another list runs behind every third layer."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(9))
        self.extra = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for k, layer in enumerate(self.layers):
            x = x + layer(x).relu()
            if k % 3 == 2:
                x = x + self.extra[k // 3](x)
        logits: Tensor = self.head(x)
        return logits


def by_number() -> nn.Module:
    return ByNumber()


def twice() -> nn.Module:
    return ByNumber(2)


def every_third() -> nn.Module:
    return EveryThird()


def beside_a_tower() -> nn.Module:
    return BesideATower()


def in_step() -> nn.Module:
    return InStep()
