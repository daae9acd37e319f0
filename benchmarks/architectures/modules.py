"""Modules of architectures that transformers does not have, in plain torch; kernels of their own are leaves.

Sizes are arguments, so that tests run small ones. Rotary embeddings and what else costs next to nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from slipstick.frontend import leaves

Core = Callable[[Tensor, Tensor, Tensor], Tensor]


def attend(causal: bool) -> Core:
    """Return torch's attention over q, k, v [batch, heads, length, dim]."""
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )


class Attention(nn.Module):
    """Projections around a core that attends."""

    def __init__(self, width: int, heads: int, kv_heads: int, core: Core, head: int = 0) -> None:
        super().__init__()
        self.head, self.core = head or width // heads, core
        self.q, self.o = (
            nn.Linear(width, heads * self.head, bias=False),
            nn.Linear(heads * self.head, width, bias=False),
        )
        self.k, self.v = (nn.Linear(width, kv_heads * self.head, bias=False) for _ in range(2))

    def heads_of(self, x: Tensor) -> Tensor:
        """[batch, length, heads x dim] to [batch, heads, length, dim]."""
        return x.view(x.shape[0], x.shape[1], -1, self.head).transpose(1, 2)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Attend to y, to x itself where there is none."""
        y = x if y is None else y
        out = self.core(self.heads_of(self.q(x)), self.heads_of(self.k(y)), self.heads_of(self.v(y)))
        made: Tensor = self.o(out.transpose(1, 2).flatten(2))
        return made


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, ffn: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, ffn, bias=False), nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Gate, up, down."""
        made: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return made


class Block(nn.Module):
    """A layer of a Llama around some attention."""

    def __init__(self, width: int, ffn: int, attention: nn.Module) -> None:
        super().__init__()
        self.norm, self.attention = nn.RMSNorm(width), attention
        self.mlp_norm, self.mlp = nn.RMSNorm(width), Mlp(width, ffn)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and MLP, each beside the residual stream."""
        x = x + self.attention(self.norm(x))
        made: Tensor = x + self.mlp(self.mlp_norm(x))
        return made


class Language(nn.Module):
    """Table, layers run `loops` times, head; with `exits` a result behind each so many layers (LayerSkip)."""

    def __init__(
        self, vocab: int, width: int, layers: Sequence[nn.Module], loops: int = 1, exits: int = 0, stop: int = 0,
        norms: Sequence[nn.Module] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.table, self.layers = nn.Embedding(vocab, width), nn.ModuleList(layers)
        self.first, self.norm = norms or (nn.Identity(), nn.RMSNorm(width))
        self.head = nn.Linear(width, vocab, bias=False)
        self.loops, self.exits, self.stop = loops, exits, stop

    def forward(self, ids: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return logits, one for each exit."""
        x, made = self.first(self.table(ids)), []
        for _ in range(self.loops):
            for i, layer in enumerate(self.layers[: self.stop or None], start=1):
                x = layer(x)
                if self.exits and i % self.exits == 0:
                    made.append(self.head(self.norm(x)))
        return tuple(made) if made else self.head(self.norm(x))


class SparseAttention(nn.Module):
    """NSA (arXiv 2502.11089): compressed, chosen and last keys attended apart, mixed by gates of each head.

    Blocks of `block` keys every `stride` become one by an MLP, `chosen` keys are read whole, and `window` last ones.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, head: int, sizes: tuple[int, int, int]) -> None:
        super().__init__()
        stride, chosen, window = sizes
        self.stride, self.head, self.heads = stride, head, heads
        self.q, self.o = nn.Linear(width, heads * head, bias=False), nn.Linear(heads * head, width, bias=False)
        self.kv = nn.ModuleList(nn.Linear(width, kv_heads * head, bias=False) for _ in range(6))
        self.compress = nn.ModuleList(nn.Linear(stride * head, head, bias=False) for _ in range(2))
        self.gates = nn.Linear(width, 3 * heads)
        self.all, self.some = leaves.Attention(), leaves.Attention(keys=chosen)
        self.last = leaves.Attention(window=window)

    def forward(self, x: Tensor) -> Tensor:
        """Attend three times."""
        b, length, _ = x.shape
        q = self.q(x).view(b, length, self.heads, self.head).transpose(1, 2)
        parts = [made(x).view(b, length, -1, self.head).transpose(1, 2) for made in self.kv]
        coarse = [
            made(part.reshape(b, part.shape[1], length // self.stride, self.stride * self.head))
            for made, part in zip(self.compress, parts[:2], strict=True)
        ]
        outs = (self.all(q, *coarse), self.some(q, *parts[2:4]), self.last(q, *parts[4:]))
        gates = self.gates(x).sigmoid().view(b, length, self.heads, 3).transpose(1, 2)
        mixed = sum(gates[..., i : i + 1] * out for i, out in enumerate(outs))
        assert isinstance(mixed, Tensor)
        made: Tensor = self.o(mixed.transpose(1, 2).reshape(b, length, self.heads * self.head))
        return made


class Goose(nn.Module):
    """A layer of RWKV-7 (arXiv 2503.14456): time mixing by a generalised delta rule, channel mixing by squared ReLU.

    `ranks` are those of decay, learning rate, value residual and gate.
    """

    def __init__(self, width: int, head: int, ranks: tuple[int, int, int, int], first: bool) -> None:
        super().__init__()
        self.head, self.first = head, first
        self.shifts = nn.Parameter(torch.empty(6, width))
        self.scales = nn.Parameter(torch.empty(3, width))  # of removed keys, of replaced ones, of the bonus
        self.r, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.out_norm = nn.GroupNorm(width // head, width)
        self.w, self.a, *v = (Low(width, rank) for rank in ranks[: 2 if first else 3])
        self.low_v = v[0] if v else None
        self.g = Low(width, ranks[3], bias=False)
        self.core = leaves.Recurrence("delta", chunk=16)
        self.mlp_shift = nn.Parameter(torch.empty(width))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def heads_of(self, x: Tensor) -> Tensor:
        """[batch, length, width] to [batch, length, heads, dim]."""
        return x.view(*x.shape[:2], -1, self.head)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """Mix over time, then over channels."""
        h = self.norm(x)
        late = F.pad(h, (0, 0, 1, -1)) - h if state is None else h
        r, k, v, w, a, g = (h + late * shift for shift in self.shifts)
        rate = self.a(a).sigmoid()
        k, gate = self.k(k), self.g(g.sigmoid())
        removed = F.normalize(self.heads_of(k * self.scales[0]), dim=-1)
        k = k * (1 + (rate - 1) * self.scales[1])
        v = self.v(v) if self.low_v is None else self.v(v) * self.low_v(v).sigmoid()
        decay = -0.606531 * self.w(w.tanh()).sigmoid()
        operands = [self.heads_of(t) for t in (self.r(r), k, v, decay, rate)]
        out = self.core(*operands, removed, state=state)
        out = out if isinstance(out, Tensor) else out[0]
        flat = self.out_norm(out.reshape(-1, x.shape[-1])).view(x.shape)
        bonus = (operands[0] * operands[1] * self.heads_of(self.scales[2].expand(x.shape))).sum(-1, keepdim=True)
        x = x + self.o((flat + (bonus * operands[2]).flatten(2)) * gate)
        h = self.mlp_norm(x)
        late = F.pad(h, (0, 0, 1, -1)) - h if state is None else h
        made: Tensor = x + self.down(F.relu(self.up(h + late * self.mlp_shift)).square())
        return made


class Low(nn.Module):
    """Two narrow matrices and a bias."""

    def __init__(self, width: int, rank: int, bias: bool = True) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Down and up."""
        made: Tensor = self.up(self.down(x))
        return made


class Video(nn.Module):
    """Layers of Wan (arXiv 2503.20314): attention over all patches, to the words, MLP; modulated by the time step."""

    def __init__(self, width: int, ffn: int, heads: int, layers: int) -> None:
        super().__init__()
        core = attend(causal=False)
        self.time = nn.Linear(256, 6 * width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "own": Attention(width, heads, heads, core),
                    "words": Attention(width, heads, heads, core),
                    "up": nn.Linear(width, ffn),
                    "down": nn.Linear(ffn, width),
                    "norm": nn.LayerNorm(width),
                }
            )
            for _ in range(layers)
        )

    def forward(self, patches: Tensor, words: Tensor, time: Tensor) -> Tensor:
        """Return what is left of the noise, patch by patch."""
        x, (a, b, c, d, e, f) = patches, self.time(time).unsqueeze(1).chunk(6, -1)
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            x = x + c * layer["own"](layer["norm"](x) * (1 + a) + b)
            x = x + layer["words"](x, words)
            x = x + f * layer["down"](F.gelu(layer["up"](layer["norm"](x) * (1 + d) + e)))
        return x


class Patched(nn.Module):
    """Bytes in patches of a fixed size: light layers over bytes, heavy ones over patches (BLT, arXiv 2412.09871)."""

    def __init__(self, light: Callable[[], nn.Module], heavy: Callable[[], nn.Module], widths: tuple[int, int],
                 layers: tuple[int, int, int], patch: int) -> None:  # fmt: skip
        super().__init__()
        narrow, wide = widths
        self.patch, self.table = patch, nn.Embedding(260, narrow)
        self.encoder, self.decoder = (nn.ModuleList(light() for _ in range(n)) for n in (layers[0], layers[2]))
        self.layers = nn.ModuleList(heavy() for _ in range(layers[1]))
        self.to_wide, self.to_narrow = nn.Linear(patch * narrow, wide), nn.Linear(wide, patch * narrow)
        self.head = nn.Linear(narrow, 260, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits of every byte."""
        x: Tensor = self.table(ids)
        b, length, narrow = x.shape
        for layer in self.encoder:
            x = layer(x)
        wide = self.to_wide(x.reshape(b, length // self.patch, self.patch * narrow))
        for layer in self.layers:
            wide = layer(wide)
        x = x + self.to_narrow(wide).reshape(b, length, narrow)
        for layer in self.decoder:
            x = layer(x)
        made: Tensor = self.head(x)
        return made


class Ranking(nn.Module):
    """DLRM (arXiv 1906.00091): tables of features, an MLP of numbers, products of all pairs, an MLP of those."""

    def __init__(self, tables: int, rows: int, width: int, bottom: Sequence[int], top: Sequence[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = _mlp((*bottom, width))
        self.top = _mlp((width + (tables + 1) * tables // 2, *top, 1))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Return the logarithm of the odds of each sample, from numbers [batch, n] and ids [batch, tables, 1]."""
        x = self.bottom(numbers)
        all_rows = torch.stack([x, *(bag(ids[:, i]) for i, bag in enumerate(self.tables))], 1)
        n = all_rows.shape[1]
        left, right = ([i for i in range(n) for j in range(i)], [j for i in range(n) for j in range(i)])
        pairs = torch.bmm(all_rows, all_rows.transpose(1, 2))[:, left, right]
        made: Tensor = self.top(torch.cat([x, pairs], 1)).mean()
        return made


def _mlp(widths: Sequence[int]) -> nn.Sequential:
    layers = (m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU()))
    return nn.Sequential(*list(layers)[:-1])
