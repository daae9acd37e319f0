"""Modules as users write them: good ones in the two common styles, and some that cannot be recorded."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

VOCAB, HIDDEN, HEADS, KV_HEADS, FFN, MAX_LENGTH = 160, 64, 4, 2, 96, 512


class CausalSelfAttention(nn.Module):
    """One product for q, k and v, split apart, as in small GPT trainers."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.c_proj = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class GptBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Learned positions, and an output matrix that is the embedding."""

    def __init__(self, num_layers: int = 4) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(MAX_LENGTH, HIDDEN)
        self.h = nn.ModuleList(GptBlock() for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Rotary embedding by complex numbers; x is [batch, length, heads, head dim]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[: x.shape[1]].view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)


class GroupedAttention(nn.Module):
    """Fewer heads for keys and values, and rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        head = HIDDEN // HEADS
        self.wq, self.wo = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(HIDDEN, KV_HEADS * head, bias=False) for _ in range(2))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, HIDDEN // HEADS) for w in (self.wq, self.wk, self.wv))
        q, k = rotated(q, table), rotated(k, table)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).contiguous().view(b, t, -1))


class SwiGlu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class LlamaBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.attention, self.feed_forward = GroupedAttention(), SwiGlu()

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        h = x + self.attention(self.attention_norm(x), table)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    """Layers in a dictionary of modules would be as in large trainers; a list is what can be folded."""

    def __init__(self, num_layers: int = 4) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, HIDDEN)
        angles = torch.outer(torch.arange(MAX_LENGTH).float(), torch.ones(HIDDEN // HEADS // 2))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.layers = nn.ModuleList(LlamaBlock() for _ in range(num_layers))
        self.norm, self.output = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, self.table)
        return self.output(self.norm(h))


class WithLoss(nn.Module):
    """Takes the next token as its target and returns the loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Gpt(2)

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.body(ids)
        return F.cross_entropy(logits.view(-1, VOCAB), ids.view(-1))


class OddLayers(nn.Module):
    """Layers that are alike as modules, of which every third one takes a longer way."""

    def __init__(self, num_layers: int = 6) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(num_layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for i, layer in enumerate(self.layers):
            x = layer(torch.relu(layer(x))) if i % 3 == 2 else layer(x)
        return self.head(x)


class Skips(nn.Module):
    """Every layer adds what the first one made: a value that does not come from the neighbour."""

    def __init__(self, num_layers: int = 4) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(num_layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x) + self.emb(ids)
        return self.head(x)


class InPlace(nn.Module):
    """Writes into its activations."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.up, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, FFN), nn.Linear(FFN, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.up(self.emb(ids))
        x.mul_(2.0)
        x.relu_()
        bias = torch.zeros_like(x)
        bias[..., : FFN // 2] = 1.0
        return self.head(x + bias)


class HardRouting(nn.Module):
    """Runs each expert on the tokens that chose it: sizes that only exist at run time."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, 4)
        self.experts = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = torch.nonzero(chosen == i)  # the line that the message must name
            if rows.shape[0] > 0:
                out[rows[:, 0], rows[:, 1]] = expert(x[rows[:, 0], rows[:, 1]])
        return out


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head, self.moe = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB), HardRouting()

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.moe(self.emb(ids)))


class Branches(nn.Module):
    """Asks for the value of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        if x.sum().item() > 0:  # the branch that the message must name
            x = x * 2
        return self.head(x)


class Unusual(nn.Module):
    """Runs operators that have no meaning in a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        return self.head(torch.cummax(torch.cummin(x, -1).values, -1).values)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, HIDDEN)

    def forward(self, ids: Tensor) -> tuple[str, int]:
        return str(self.emb(ids).dtype), 1


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, HIDDEN)

    def forward(self, ids: Tensor) -> Tensor:
        return self.emb(ids).mean(1)


class ReadsWeights(nn.Module):
    """Looks at a number while it is built; on the meta device there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(VOCAB, HIDDEN)
        self.scale = self.emb.weight.detach().abs().max().item()  # there is no weight yet


def gpt() -> nn.Module:
    return Gpt()


def llama() -> nn.Module:
    return Llama()


def with_loss() -> nn.Module:
    return WithLoss()


def odd_layers() -> nn.Module:
    return OddLayers()


def skips() -> nn.Module:
    return Skips()


def in_place() -> nn.Module:
    return InPlace()


def routed() -> nn.Module:
    return Routed()


def branches() -> nn.Module:
    return Branches()


def unusual() -> nn.Module:
    return Unusual()


def pair() -> nn.Module:
    return Pair()


def pooled() -> nn.Module:
    return Pooled()


def reads_weights() -> nn.Module:
    return ReadsWeights()


class ByOperator(nn.Module):
    """Says what its routing means instead of spelling it out."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.router = nn.Linear(HIDDEN, 4, bias=False)
        self.up, self.down = nn.Parameter(torch.empty(4, 2 * FFN, HIDDEN)), nn.Parameter(torch.empty(4, HIDDEN, FFN))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(2, dim=-1)
        out = torch.ops.slipstick.experts(tokens, chosen, weights, self.up, self.down, None, None, True, False)[0]
        return self.head(out.view_as(x))


class Loops(nn.Module):
    """Walks through the sequence one position at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.cell, self.head = (
            nn.Embedding(VOCAB, HIDDEN),
            nn.Linear(HIDDEN, HIDDEN),
            nn.Linear(HIDDEN, VOCAB),
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        states = [x[:, 0]]
        for i in range(1, x.shape[1]):
            states.append(torch.tanh(self.cell(states[-1]) + x[:, i]))
        return self.head(torch.stack(states, dim=1))


class Mixed(nn.Module):
    """One layer of experts in a list that is no chain: each reads the same input."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.experts = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        return self.head(sum(expert(x) for expert in self.experts))


class Between(nn.Module):
    """Something happens between the layers that belongs to none of them."""

    def __init__(self, num_layers: int = 6) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(num_layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(x)


def by_operator() -> nn.Module:
    return ByOperator()


def loops() -> nn.Module:
    return Loops()


def mixed() -> nn.Module:
    return Mixed()


def between() -> nn.Module:
    return Between()


def nonsense() -> object:
    return {"layers": 2}


def raises() -> nn.Module:
    raise RuntimeError("no such size")
