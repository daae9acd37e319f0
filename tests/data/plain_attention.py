"""A GPT whose attention is spelt out product by product, as before fused kernels, with dropout everywhere."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn

VOCAB, HIDDEN, HEADS, MAX_LENGTH, DROPOUT = 160, 64, 4, 512, 0.1


class Attention(nn.Module):
    future: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.drop_scores, self.drop = nn.Dropout(DROPOUT), nn.Dropout(DROPOUT)
        future = torch.ones(MAX_LENGTH, MAX_LENGTH, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.c_attn(x).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (c // HEADS) ** -0.5
        scores = scores.masked_fill(self.future[:t, :t], float("-inf"))
        y = self.drop_scores(scores.softmax(-1)) @ v
        return self.drop(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attn = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN), nn.Dropout(DROPOUT)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, num_layers: int = 3) -> None:
        super().__init__()
        self.wte, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)
        self.h = nn.ModuleList(Block() for _ in range(num_layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids)
        for block in self.h:
            x = block(x)
        return self.head(x)


def gpt() -> nn.Module:
    return Gpt()
