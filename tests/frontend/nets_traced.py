"""A small net for graphs that torch traces: grouped heads, a written-out norm, library norms, two kinds of products."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS = 96, 32, 4, 2, 8, 128, 2
IDS = torch.zeros(2, 16, dtype=torch.int64)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.ln = nn.RMSNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.q = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.kv = nn.Linear(HIDDEN, 2 * KV_HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        h = self.norm(x)
        q = self.q(h).view(b, t, HEADS, HEAD_DIM).transpose(1, 2)
        k, v = self.kv(h).view(b, t, 2 * KV_HEADS, HEAD_DIM).transpose(1, 2).chunk(2, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(out.transpose(1, 2).reshape(b, t, HIDDEN))
        return x + self.down(F.gelu(self.up(self.ln(x))))


class Net(nn.Module):
    """Ids to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
