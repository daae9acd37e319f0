"""Factories of modules that need a description, or make sizes plain numbers: what users write, in small."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

import slipstick

VOCAB, HIDDEN = 100, 64


class Base(nn.Module):
    """Embedding and head; a subclass says what is between."""

    def __init__(self) -> None:
        super().__init__()
        self.e, self.h = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        out: Tensor = self.h(x)
        return out


class Masked(Base):
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.logits(self.e(ids) * mask[..., None])


class InDict(Base):
    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        return {"pred": self.logits(self.e(ids))}


@dataclass
class Output:
    features: Tensor
    pooled: tuple[Tensor, Tensor]


class Encoder(Base):
    """Hidden states and pooled ones, no logits."""

    def forward(self, ids: Tensor) -> Output:
        x = torch.tanh(self.e(ids))
        return Output(x, (x.mean(1), x.amax(1)))


class Images(nn.Module):
    """Patches of an image, as logits of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.head = nn.Linear(3 * 8 * 8, HIDDEN), nn.Linear(HIDDEN, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = image.reshape(image.shape[0], 3, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        classes: Tensor = self.head(self.patch(x).mean(1))
        return classes


class Step(Base):
    """One decode step over caches that the caller holds."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = self.qkv(self.e(ids)).view(ids.shape[0], ids.shape[1], 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        out = F.scaled_dot_product_attention(q, keys, values)
        return self.logits(out.transpose(1, 2).flatten(-2)), (keys, values)


class LongKernel(Base):
    """A convolution along the sequence in frequencies, whose kernel is as long as the longest example."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(HIDDEN, 64))

    def forward(self, ids: Tensor) -> Tensor:
        x, s = self.e(ids).transpose(1, 2), ids.shape[1]
        mixed = torch.fft.rfft(x, n=2 * s) * torch.fft.rfft(self.kernel[:, :s], n=2 * s)
        return self.logits(torch.fft.irfft(mixed, n=2 * s)[..., :s].transpose(1, 2))


class OneLength(Base):
    """A parameter of 512 positions, all of which are added."""

    def __init__(self) -> None:
        super().__init__()
        self.pos = nn.Parameter(torch.zeros(1, 512, HIDDEN))

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits(self.e(ids) + self.pos)  # the line that names 512


class AtMost(OneLength):
    def forward(self, ids: Tensor) -> Tensor:
        return self.logits(self.e(ids) + self.pos[:, : ids.shape[1]])


class AsNumber(Base):
    def forward(self, ids: Tensor) -> Tensor:
        length = len(range(ids.shape[1]))  # the line that makes a number
        return self.logits(torch.ones(length, length).tril().to(self.h.weight.dtype) @ self.e(ids))


class AsInt(Base):
    def forward(self, ids: Tensor) -> Tensor:
        length = int(ids.shape[1])
        assert isinstance(3, int)
        assert int("3") == 3
        return self.logits(torch.ones(length, length).tril().to(self.h.weight.dtype) @ self.e(ids))


class Decides(Base):
    """Runs a product more where sequences are long."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.e(ids)
        if ids.shape[1] > 1000:  # the line that decides
            x = x @ self.h.weight.T @ self.h.weight
        return self.logits(x)


class Chunks(Base):
    """Pieces of sixteen positions, each by itself."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits(torch.cat([torch.tanh(c) for c in self.e(ids).split(16, 1)], 1))  # the line that splits


class Moe(nn.Module):
    """Runs the experts that are hit, and one for all."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, 8, bias=False)
        self.experts = nn.ModuleList(Ffn(128) for _ in range(8))
        self.shared = Ffn(96)

    def forward(self, x: Tensor) -> Tensor:
        chosen: Tensor = self.gate(x).topk(2, -1).indices
        out: Tensor = self.shared(x)
        for i, expert in enumerate(self.experts):
            hit = (chosen == i).any(-1)
            if hit.any():
                out[hit] = out[hit] + expert(x[hit])
        return out


class Ffn(nn.Module):
    def __init__(self, ffn: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(HIDDEN, ffn, bias=False), nn.Linear(HIDDEN, ffn, bias=False)
        self.w2 = nn.Linear(ffn, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return out


class Sparse(Base):
    def __init__(self) -> None:
        super().__init__()
        self.moe = Moe()

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits(self.moe(self.e(ids)))


def with_inputs() -> object:
    return Masked(), (torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2, 8, dtype=torch.bfloat16))


def as_run() -> slipstick.ModelRun:
    ids, kv = torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 4, 8, 16, dtype=torch.bfloat16)
    words = {"ids": ("batch", None), "keys": ("batch", None, "kv"), "values": ("batch", None, "kv")}
    return slipstick.ModelRun(Step(), (ids, kv, kv), words, caches=("keys", "values"))


def wrong_inputs() -> object:
    return Masked(), 3


def square(out: Tensor) -> Tensor:
    return out.float().pow(2).mean()
