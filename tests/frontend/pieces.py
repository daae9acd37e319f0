"""Tensor code in single steps beside the operators it stands for, in modules that the recorder runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from slipstick.frontend.semantic import scan as semantic_scan
from slipstick.frontend.semantic import semantic

HIDDEN, HEADS, WIDTH = 64, 4, 16


class Piece(nn.Module):
    """An embedding and what is done with it; parameters and stored tensors are there for whoever reads them."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.embed = nn.Embedding(128, HIDDEN)
        self.weight, self.bias = nn.Parameter(torch.empty(HIDDEN)), nn.Parameter(torch.empty(HIDDEN))
        self.sinks, self.table = nn.Parameter(torch.empty(HEADS)), nn.Parameter(torch.empty(HEADS, 256, 256))
        self.square = nn.Parameter(torch.empty(HIDDEN, HIDDEN))
        self.register_buffer("triangle", torch.tril(torch.ones(1, 1, 256, 256)))
        self.register_buffer("angles", torch.empty(256, WIDTH // 2, dtype=torch.complex64))
        self.step = step

    def forward(self, ids: Tensor) -> Tensor:
        return self.step(self.embed(ids), self)


Step: TypeAlias = Callable[[Tensor, Piece], Tensor]
Mask: TypeAlias = Callable[[Tensor, Piece], Tensor]


def built(step: Step) -> Piece:
    """Build a piece on the meta device in bf16."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            return Piece(step)
    finally:
        torch.set_default_dtype(torch.float32)


def split_heads(x: Tensor, heads: int = HEADS) -> Tensor:
    b, s, _ = x.shape
    return x[..., : heads * WIDTH].reshape(b, s, heads, WIDTH).transpose(1, 2)


def joined(y: Tensor) -> Tensor:
    b, h, s, d = y.shape
    return y.transpose(1, 2).reshape(b, s, h * d)


def softmax_attention(mask: Mask | None = None, repeat: Callable[[Tensor], Tensor] | None = None) -> Step:
    """Scores, scale, mask, softmax in fp32, values."""

    def step(x: Tensor, piece: Piece) -> Tensor:
        q, k = split_heads(x), split_heads(x)
        if repeat is not None:
            k = repeat(split_heads(x, 2))
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH)
        scores = scores if mask is None else mask(scores, piece)
        return joined(F.softmax(scores, -1, dtype=torch.float32).to(x.dtype) @ k)

    return step


def fused_attention(
    causal: bool = False, window: int = 0, sinks: bool = False, kv_heads: int = HEADS, shared: bool = False,
    biased: bool = False, softcap: float = 0.0,
) -> Step:  # fmt: skip
    """One operator; with `shared` keys and queries are one tensor."""

    def step(x: Tensor, piece: Piece) -> Tensor:
        q = split_heads(x)
        k = q if shared else split_heads(x, kv_heads)
        given = piece.sinks if sinks else None
        bias = piece.table[:, : x.shape[1], : x.shape[1]][None] if biased else None
        return semantic.attention(q, k, k, given, causal, window, 0.0, bias, None, softcap)[0].flatten(2)

    return step


def positions(scores: Tensor) -> tuple[Tensor, Tensor]:
    length = torch.arange(scores.shape[-1])
    return length[:, None], length[None, :]


def by_triangle(scores: Tensor, piece: Piece) -> Tensor:
    s = scores.shape[-1]
    return scores + torch.full((s, s), float("-inf")).triu(1)


def by_stored_triangle(scores: Tensor, piece: Piece) -> Tensor:
    s = scores.shape[-1]
    assert isinstance(piece.triangle, Tensor)
    return scores.masked_fill(piece.triangle[:, :, :s, :s] == 0, float("-inf"))


def by_positions(scores: Tensor, piece: Piece) -> Tensor:
    query, key = positions(scores)
    return torch.where(key <= query, scores, torch.finfo(scores.dtype).min)


def by_window(scores: Tensor, piece: Piece) -> Tensor:
    query, key = positions(scores)
    return scores.masked_fill(~((key <= query) & (key > query - 8))[None, None], float("-inf"))


def by_distance(scores: Tensor, piece: Piece) -> Tensor:
    query, key = positions(scores)
    distance = query - key
    return scores + torch.where((distance >= 0) & (distance < 8), 0.0, -1e9)


def by_learned_table(scores: Tensor, piece: Piece) -> Tensor:
    s = scores.shape[-1]
    return by_triangle(scores + piece.table[:, :s, :s], piece)


def capped(scores: Tensor, piece: Piece) -> Tensor:
    return by_triangle(torch.tanh(scores / 30.0) * 30.0, piece)


def repeated_by_expand(k: Tensor) -> Tensor:
    b, g, s, d = k.shape
    return k[:, :, None].expand(b, g, 2, s, d).reshape(b, g * 2, s, d)


def with_sinks(x: Tensor, piece: Piece) -> Tensor:
    q = split_heads(x)
    scores = by_triangle(q @ q.transpose(2, 3) * 0.25, piece)
    sinks = piece.sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], -1)
    both = torch.cat([scores, sinks], -1)
    both = both - both.max(-1, keepdim=True).values
    return joined(F.softmax(both, -1)[..., :-1].to(x.dtype) @ q)


def by_einsum(x: Tensor, piece: Piece) -> Tensor:
    q, k, v = (t.reshape(*t.shape[:2], HEADS, WIDTH) for t in (x, x + 1.0, x + 2.0))
    weights = F.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)


def of_three(x: Tensor, piece: Piece) -> Tensor:
    q, k, v = (split_heads(t) for t in (x, x + 1.0, x + 2.0))
    return semantic.attention(q, k, v, None, False, 0, 0.0)[0].flatten(2)


def tables(x: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.arange(x.shape[1])[:, None] * torch.ones(WIDTH // 2)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def turned_by_copy(x: Tensor, piece: Piece) -> Tensor:
    cos, sin = (torch.cat((t, t), -1) for t in tables(x))
    q = split_heads(x)
    a, b = q[..., : WIDTH // 2], q[..., WIDTH // 2 :]
    return q * cos + torch.cat((-b, a), -1) * sin


def turned_by_halves(x: Tensor, piece: Piece) -> Tensor:
    (cos, sin), (a, b) = tables(x), split_heads(x).chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def turned_by_pairs(x: Tensor, piece: Piece) -> Tensor:
    (cos, sin), q = tables(x), split_heads(x)
    a, b = q.reshape(*q.shape[:-1], WIDTH // 2, 2).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(3)


def turned_as_complex(x: Tensor, piece: Piece) -> Tensor:
    b, s, _ = x.shape
    assert isinstance(piece.angles, Tensor)
    pairs = torch.view_as_complex(x.reshape(b, s, HEADS, WIDTH).float().reshape(b, s, HEADS, WIDTH // 2, 2))
    turned = pairs * piece.angles[:s].view(1, -1, 1, WIDTH // 2)
    return torch.view_as_real(turned).flatten(3).type_as(x)


def turned(x: Tensor, piece: Piece) -> Tensor:
    return semantic.rope(split_heads(x), *tables(x))


def turned_by_table(x: Tensor, piece: Piece) -> Tensor:
    b, s, _ = x.shape
    assert isinstance(piece.angles, Tensor)
    table = torch.view_as_real(piece.angles[:s].view(1, -1, 1, WIDTH // 2))
    return semantic.rope(x.reshape(b, s, HEADS, WIDTH), table[..., 0], table[..., 1])


def wide_turned(x: Tensor, piece: Piece) -> Tensor:
    cos, sin = (torch.cat((t, t), -1) for t in tables(x))
    return semantic.rope(split_heads(x), cos, sin)


def layer_norm_of_powers(x: Tensor, piece: Piece) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) * piece.weight + piece.bias


def layer_norm_of_variance(x: Tensor, piece: Piece) -> Tensor:
    wide = x.float()
    variance = wide.var(-1, keepdim=True, unbiased=False)
    rows = (wide - wide.mean(-1, keepdim=True)) * torch.rsqrt(variance + 1e-5)
    return piece.bias + piece.weight * rows.to(x.dtype)


def rms_norm_in_fp32(x: Tensor, piece: Piece) -> Tensor:
    wide = x.float()
    return piece.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rms_norm_around_one(x: Tensor, piece: Piece) -> Tensor:
    wide = x.float()
    rows = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
    return (rows * (1.0 + piece.weight.float())).type_as(x)


def softmax_of_exponentials(x: Tensor, piece: Piece) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def gelu_by_tanh(x: Tensor, piece: Piece) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def gelu_by_factors(x: Tensor, piece: Piece) -> Tensor:
    return x * 0.5 * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def scanned(x: Tensor, piece: Piece) -> Tensor:
    q = x.reshape(*x.shape[:2], HEADS, WIDTH)
    out, _ = semantic_scan.scan(q, [q, q, q[..., 0], piece.sinks], None, "ssd", 64, WIDTH)
    return out.flatten(2)


def convolved(x: Tensor, piece: Piece) -> Tensor:
    weight = piece.table[:1, :HIDDEN, :4].transpose(0, 1)
    out, _ = semantic_scan.causal_conv(x.transpose(1, 2), weight, piece.bias, None, "silu", 3)
    wide = F.conv1d(x.transpose(1, 2), piece.table[:1, :HIDDEN, :3].transpose(0, 1), padding=1, groups=HIDDEN)
    return torch.cat((out.transpose(1, 2), x.flatten(2)), -1) + wide.sum()
