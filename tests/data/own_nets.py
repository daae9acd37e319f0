"""Own modules at sizes that factories take: packed and separate projections, experts, caches."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, packed: bool) -> None:
        super().__init__()
        self.heads, self.packed = heads, packed
        if packed:
            self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        else:
            self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.wo = nn.Linear(dim, dim, bias=not packed)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        if self.packed:
            q, k, v = self.wqkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        else:
            q, k, v = (w(x).view(b, t, self.heads, d // self.heads).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, d))


class Gated(nn.Module):
    """Gate and up in one product."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.w1(x).chunk(2, -1)
        return self.w2(F.silu(gate) * up)


class Plain(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.gelu(self.a(x)))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, packed: bool) -> None:
        super().__init__()
        norm = nn.RMSNorm if packed else nn.LayerNorm
        self.n1, self.n2 = norm(dim), norm(dim)
        self.attn = Attention(dim, heads, packed)
        self.mlp = Gated(dim) if packed else Plain(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class Net(nn.Module):
    """A GPT of any size; `packed` as in small trainers, else with a product for each of q, k and v."""

    def __init__(
        self, dim: int = 64, layers: int = 2, heads: int = 4, vocab: int = 96, packed: bool = True, again: bool = False
    ) -> None:
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, packed) for _ in range(layers))
        self.norm, self.head, self.again = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False), again

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(self.norm(x))


def packed() -> nn.Module:
    return Net()


def separate() -> nn.Module:
    return Net(packed=False)


def checkpointed() -> nn.Module:
    return Net(again=True)


def large(dim: int = 8192, layers: int = 48) -> nn.Module:
    """A net that no small machine can run in float64, but for its arguments."""
    return Net(dim, layers)


class Dropping(Net):
    """Draws at random by a function, which no setting of a layer turns off."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(F.dropout(self.emb(ids), 0.1, self.training)))


def dropping() -> nn.Module:
    return Dropping()


class Positions(Net):
    """Positions as a second input, as long as the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(256, 64))

    table: Tensor

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:  # type: ignore[override]
        x = self.emb(ids) + self.table[positions].view(1, ids.shape[1], 64)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def positions() -> tuple[nn.Module, dict[str, Tensor]]:
    return Positions(), {"ids": torch.zeros(2, 32, dtype=torch.int64), "positions": torch.arange(32)}


class Merged(nn.Module):
    """LoRA merged into a frozen weight: a product of two weights."""

    def __init__(self, dim: int = 64) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(96, dim), nn.Linear(dim, 96)
        self.base, self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, 4, bias=False), nn.Linear(4, dim, bias=False)
        self.base.weight.requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        return self.head(x + F.linear(x, self.base.weight + self.b.weight @ self.a.weight, self.base.bias))


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Stepping(nn.Module):
    """One attention layer with a cache that its caller holds."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(96, 64), nn.Linear(64, 96)
        self.q, self.k, self.v = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.emb(ids)
        q, k, v = (w(x).unflatten(-1, (4, 16)).transpose(1, 2) for w in (self.q, self.k, self.v))
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        return self.head(y.transpose(1, 2).flatten(2)), keys, values
