"""A Llama of two layers, written in library calls or in single steps: the same model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from slipstick.frontend.semantic import semantic

HIDDEN, HEADS, KV_HEADS, WIDTH, FFN, VOCAB = 64, 4, 2, 16, 96, 128


class SpelledNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def turned(x: Tensor) -> Tensor:
    return torch.cat((-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]), -1)


def shared(k: Tensor) -> Tensor:
    b, g, s, d = k.shape
    return k[:, :, None].expand(b, g, HEADS // KV_HEADS, s, d).reshape(b, HEADS, s, d)


class Attention(nn.Module):
    def __init__(self, spelled: bool) -> None:
        super().__init__()
        self.spelled = spelled
        self.q, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(HIDDEN, KV_HEADS * WIDTH, bias=False) for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (m(x).view(b, s, -1, WIDTH).transpose(1, 2) for m in (self.q, self.k, self.v))
        attend = self.in_steps if self.spelled else self.by_call
        out: Tensor = self.o(attend(q, k, v, cos, sin).transpose(1, 2).reshape(b, s, -1))
        return out

    @staticmethod
    def by_call(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = semantic.rope(q, cos, sin), semantic.rope(k, cos, sin)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    @staticmethod
    def in_steps(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        s = q.shape[2]
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        scores = q @ shared(k).transpose(2, 3) * WIDTH**-0.5
        scores = scores + torch.full((s, s), float("-inf")).triu(1)
        return F.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ shared(v)


class Layer(nn.Module):
    def __init__(self, spelled: bool) -> None:
        super().__init__()
        self.spelled = spelled
        self.before, self.between = (SpelledNorm() if spelled else nn.RMSNorm(HIDDEN) for _ in range(2))
        self.attention = Attention(spelled)
        self.gate, self.up = (nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.before(x), cos, sin)
        y = self.between(x)
        gate = self.gate(y)
        active = gate * torch.sigmoid(gate) if self.spelled else F.silu(gate)
        out: Tensor = x + self.down(active * self.up(y))
        return out


class Llama(nn.Module):
    def __init__(self, spelled: bool) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)
        self.layers = nn.ModuleList(Layer(spelled) for _ in range(2))
        self.norm = SpelledNorm() if spelled else nn.RMSNorm(HIDDEN)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        angles = torch.arange(ids.shape[1])[:, None] * torch.ones(WIDTH // 2)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos()[None, None].to(x.dtype), angles.sin()[None, None].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        out: Tensor = self.head(self.norm(x))
        return out


def in_steps() -> nn.Module:
    """Written out."""
    return Llama(spelled=True)


def by_calls() -> nn.Module:
    """In calls that the recorder knows."""
    return Llama(spelled=False)
