"""Modules in the manner of three well-known code bases, written for the tests: nanoGPT, torchtitan and Megatron."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

VOCAB, HIDDEN, HEADS, KV_HEADS, FFN, LENGTH, EXPERTS, TOP_K = 160, 64, 4, 2, 96, 512, 8, 2

compiled_flex = torch.compile(flex_attention, backend="eager")


class NanoBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN, bias=False), nn.LayerNorm(HIDDEN, bias=False)
        self.c_attn, self.c_proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.c_fc, self.gelu, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN)
        self.dropout = nn.Dropout(0.1)

    def attend(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.c_attn(x).split(HIDDEN, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return self.dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.ln_1(x))
        return x + self.dropout(self.down(self.gelu(self.c_fc(self.ln_2(x)))))


class NanoGpt(nn.Module):
    """Returns logits and, with targets, the loss; weights are tied; logits of the last position alone in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCAB, HIDDEN),
                "wpe": nn.Embedding(LENGTH, HIDDEN),
                "h": nn.ModuleList(NanoBlock() for _ in range(4)),
                "ln_f": nn.LayerNorm(HIDDEN, bias=False),
            }
        )
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        _, t = idx.size()
        assert t <= LENGTH, f"cannot forward a sequence of {t}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        parts = self.transformer
        x = parts["wte"](idx) + parts["wpe"](pos)
        for block in parts["h"].children():
            x = block(x)
        x = parts["ln_f"](x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def apply_rotary(x: Tensor, freqs: Tensor) -> Tensor:
    """Rotary embedding by complex numbers; x is [batch, length, heads, head dim]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs[None, : x.shape[1], None]).flatten(3).type_as(x)


class TitanAttention(nn.Module):
    """Grouped queries, complex rotary embedding, flex attention compiled once for the whole file."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = HIDDEN // HEADS
        self.wq, self.wo = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.wk = nn.Linear(HIDDEN, KV_HEADS * self.head_dim, bias=False)
        self.wv = nn.Linear(HIDDEN, KV_HEADS * self.head_dim, bias=False)

    def forward(self, x: Tensor, freqs: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, -1, self.head_dim) for w in (self.wq, self.wk, self.wv))
        q, k = apply_rotary(q, freqs), apply_rotary(k, freqs)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, s, s, device=x.device)
        out = compiled_flex(q, k, v, block_mask=mask, enable_gqa=True)
        return self.wo(out.transpose(1, 2).contiguous().view(b, s, -1))


class TitanExperts(nn.Module):
    """Tokens sorted by expert, three grouped products."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(EXPERTS, FFN, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, FFN))
        self.w3 = nn.Parameter(torch.empty(EXPERTS, FFN, HIDDEN))

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        ends = torch.cumsum(counts, dim=0, dtype=torch.int32)
        up, gate, down = (w.bfloat16().transpose(-2, -1) for w in (self.w1, self.w3, self.w2))
        h = F.silu(F.grouped_mm(x.bfloat16(), up, offs=ends)) * F.grouped_mm(x.bfloat16(), gate, offs=ends)
        return F.grouped_mm(h, down, offs=ends).type_as(x)


class TitanMoe(nn.Module):
    """A router whose counts come from histc, and experts on reordered tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = TitanExperts()

    def forward(self, x: Tensor) -> Tensor:
        flat = x.view(-1, x.shape[-1])
        scores, chosen = torch.topk(torch.softmax(self.gate(flat).float(), dim=-1), TOP_K, dim=-1)
        counts = torch.histc(chosen.view(-1).float(), bins=EXPERTS, min=0, max=EXPERTS).int()
        order = torch.argsort(chosen.view(-1), stable=True)
        rows = flat[order // TOP_K] * scores.view(-1)[order].unsqueeze(-1).to(x.dtype)
        out = torch.zeros_like(flat).index_add(0, order // TOP_K, self.experts(rows, counts))
        return out.view(x.shape)


class TitanBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.moe = TitanAttention(), TitanMoe()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)

    def forward(self, x: Tensor, freqs: Tensor) -> Tensor:
        h = x + self.attention(self.attention_norm(x), freqs)
        return h + self.moe(self.ffn_norm(h))


class Titan(nn.Module):
    """Layers in a ModuleDict by number, rotary tables in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, HIDDEN)
        angles = torch.outer(torch.arange(LENGTH).float(), 1.0 / 1e4 ** (torch.arange(0, 16, 2).float() / 16))
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.layers = nn.ModuleDict({str(i): TitanBlock() for i in range(4)})
        self.norm, self.output = nn.RMSNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, self.freqs_cis)
        return self.output(self.norm(h))


class ParallelLinear(nn.Module):
    """Returns the result and the bias, which the caller adds, as Megatron's linear layers do."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(out, width)), nn.Parameter(torch.empty(out))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.linear(x, self.weight), self.bias


class CoreAttention(nn.Module):
    """Scores into a buffer by baddbmm, mask, softmax, and a product with the values; q, k, v are [s, b, h, d]."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s, b, h, d = q.shape
        q, k, v = (t.reshape(s, b * h, d) for t in (q, k, v))
        buffer = torch.empty(b * h, s, s, dtype=q.dtype, device=q.device)
        scores = torch.baddbmm(buffer, q.transpose(0, 1), k.permute(1, 2, 0), beta=0.0, alpha=1 / math.sqrt(d))
        hidden = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
        probs = torch.softmax(scores.view(b, h, s, s).masked_fill(hidden, -1e4).float(), dim=-1).to(q.dtype)
        out = torch.bmm(probs.view(b * h, s, s), v.transpose(0, 1)).view(b, h, s, d)
        return out.permute(2, 0, 1, 3).reshape(s, b, h * d)


class MegatronLayer(nn.Module):
    """Layout [sequence, batch, hidden]; q, k and v interleaved by head in one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.pre_mlp_layernorm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.linear_qkv, self.linear_proj = ParallelLinear(HIDDEN, 3 * HIDDEN), ParallelLinear(HIDDEN, HIDDEN)
        self.linear_fc1, self.linear_fc2 = ParallelLinear(HIDDEN, 4 * HIDDEN), ParallelLinear(4 * HIDDEN, HIDDEN)
        self.core_attention = CoreAttention()

    def forward(self, x: Tensor) -> Tensor:
        qkv, bias = self.linear_qkv(self.input_layernorm(x))
        mixed = (qkv + bias).view(x.shape[0], x.shape[1], HEADS, 3 * HIDDEN // HEADS)
        q, k, v = torch.split(mixed, HIDDEN // HEADS, dim=-1)
        out, bias = self.linear_proj(self.core_attention(q, k, v))
        x = x + out + bias
        up, bias = self.linear_fc1(self.pre_mlp_layernorm(x))
        out, last = self.linear_fc2(F.gelu(up + bias, approximate="tanh"))
        return x + out + last


class Megatron(nn.Module):
    """Ids [batch, length] to the mean loss over positions [batch, length]; the output matrix is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(MegatronLayer() for _ in range(4))
        self.final_layernorm = nn.LayerNorm(HIDDEN)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.word_embeddings(ids).transpose(0, 1).contiguous()
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.final_layernorm(x), self.word_embeddings.weight).transpose(0, 1).contiguous()
        return F.cross_entropy(logits.view(-1, VOCAB).float(), labels.view(-1))
