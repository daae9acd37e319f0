"""Modules as people bring them: what they put on a GPU, name, script or leave open."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

V, H = 64, 32


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e, self.l, self.o = nn.Embedding(V, H), nn.Linear(H, H), nn.Linear(H, V)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.o(torch.relu(self.l(self.e(ids))))
        return logits


class ByName(Net):
    def forward(self, *, ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(ids)


class AnyName(Net):
    def forward(self, **given: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(given["ids"])


class OnGpu(Net):
    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.ones(ids.shape[1], device="cuda")
        return super().forward(ids.to("cuda:0")).cuda() * mask[:, None]


class Picked(Net):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids)[ids > 3]  # as many rows as data say


class Lazy(Net):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.LazyLinear(H)


class Broken(Net):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) @ torch.ones(7, 7)


class Scripted(Net):
    def __init__(self) -> None:
        super().__init__()
        self.l = torch.jit.script(nn.Linear(H, H))  # type: ignore[assignment]


def gpu() -> nn.Module:
    return nn.Sequential(Net().to("cuda"), nn.Linear(V, V, device="cuda")).cuda()


def sized(width: int) -> nn.Module:
    return nn.Sequential(Net(), nn.Linear(V, width))


def three() -> tuple[nn.Module, Tensor, int]:
    return Net(), torch.zeros(2, 8, dtype=torch.int64), 3


bound = functools.partial(sized, 8)
held = Net()
