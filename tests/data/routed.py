"""Experts as people write them: loops over a list with masks, indices, counts and sorting; and some that are not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

VOCAB, HIDDEN, FFN, EXPERTS, TOP_K = 96, 32, 48, 8, 2


class Gated(nn.Module):
    def __init__(self, ffn: int = FFN) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, ffn, bias=False)
        self.up = nn.Linear(HIDDEN, ffn, bias=False)
        self.down = nn.Linear(ffn, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Twice(Gated):
    """Multiplies by one of its matrices twice."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x) * self.up(x))
        return out


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(HIDDEN, FFN), nn.ReLU(), nn.Linear(FFN, HIDDEN))


class Routed(nn.Module):
    """A router and a list of experts; classes below differ in how rows get there."""

    def __init__(self, expert: Callable[[], nn.Module] = Gated) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(expert() for _ in range(EXPERTS))

    def choose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Each row's weights and experts [rows, k]."""
        weights, chosen = torch.topk(self.router(rows).softmax(-1), TOP_K)
        return weights / weights.sum(-1, keepdim=True), chosen


class ByWhere(Routed):
    def __init__(self) -> None:
        super().__init__()
        self.shared = Gated()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, HIDDEN)
        weights, chosen = self.choose(rows)
        masks = (chosen.unsqueeze(-1) == torch.arange(EXPERTS)).permute(2, 0, 1)
        out = torch.zeros_like(rows)
        for mask, expert in zip(masks, self.experts, strict=True):
            row, place = torch.where(mask)
            out[row] += weights[row, place, None] * expert(rows[row])
        shared: torch.Tensor = self.shared(x)
        return out.view(x.shape) + shared


class ByOneHot(Routed):
    """Returns the router's logits, too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.view(-1, HIDDEN)
        logits = self.router(rows)
        weights, chosen = torch.topk(F.softmax(logits, dim=1, dtype=torch.float), TOP_K, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        weights = weights.to(rows.dtype)
        out = torch.zeros_like(rows)
        mask = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        for e in range(EXPERTS):
            place, row = torch.where(mask[e])
            given = rows[None, row].reshape(-1, HIDDEN)
            out.index_add_(0, row, self.experts[e](given) * weights[row, place, None])
        return out.reshape(x.shape), logits


class BySparseGates(Routed):
    """Weights of all experts, zero where not chosen; plain experts with biases."""

    def __init__(self) -> None:
        super().__init__(plain)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        top, chosen = logits.topk(TOP_K, dim=-1)
        gates = torch.full_like(logits, float("-inf")).scatter(-1, chosen, top).softmax(-1)
        out, rows, flat = torch.zeros_like(x), x.view(-1, HIDDEN), gates.view(-1, EXPERTS)
        for e, expert in enumerate(self.experts):
            hit = (chosen == e).any(dim=-1)
            if hit.view(-1).any():
                weighted = expert(rows[hit.view(-1)]) * flat[hit.view(-1), e].unsqueeze(1)
                out[hit] += weighted
        return out


class BySorting(Routed):
    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, HIDDEN)
        weights, chosen = self.choose(rows)
        counts = chosen.new_zeros((rows.shape[0], EXPERTS)).scatter_(1, chosen, 1).sum(dim=0)
        order = chosen.view(-1).argsort()
        sorted_rows, done, start = rows[order // TOP_K], [], 0
        for e, count in enumerate(counts.tolist()):
            if count:
                done.append(self.experts[e](sorted_rows[start : start + count]))
                start += count
        made = torch.empty_like(sorted_rows)
        made[order] = torch.cat(done)
        return (made.view(-1, TOP_K, HIDDEN) * weights.unsqueeze(-1)).sum(1).view(x.shape)


class Switch(Routed):
    """One expert a row."""

    def forward(self, x: Tensor) -> Tensor:
        best, chosen = self.router(x).softmax(-1).max(dim=-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            hit = chosen == e
            out[hit] = expert(x[hit]) * best[hit].unsqueeze(-1)
        return out


class WithCapacity(Routed):
    """Drops what exceeds the capacity: rows of experts do not add up to k a token."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, HIDDEN)
        weights, chosen = self.choose(rows)
        out = torch.zeros_like(rows)
        for e, expert in enumerate(self.experts):
            row, place = torch.where(chosen == e)
            row, place = row[: rows.shape[0] // 2], place[: rows.shape[0] // 2]
            out = out.index_add(0, row, expert(rows[row]) * weights[row, place, None])
        return out.view(x.shape)


class ByThreshold(Routed):
    """As many experts a row as exceed a score."""

    def forward(self, x: Tensor) -> Tensor:
        scores, out = self.router(x).sigmoid(), torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            hit = scores[..., e] > 0.5
            out[hit] += expert(x[hit])
        return out


class OnScaledRows(Routed):
    """Weights what experts read, not what they return: another function of the same cost."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, HIDDEN)
        weights, chosen = self.choose(rows)
        out = torch.zeros_like(rows)
        for e, expert in enumerate(self.experts):
            row, place = torch.where(chosen == e)
            out = out.index_add(0, row, expert(rows[row] * weights[row, place, None]))
        return out.view(x.shape)


class OfTwice(Switch):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Twice() for _ in range(EXPERTS))


class Net(nn.Module):
    """Two layers of experts of a class between an embedding and a head."""

    def __init__(self, kind: type[Routed]) -> None:
        super().__init__()
        self.e = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(kind() for _ in range(2))
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.e(ids)
        for layer in self.layers:
            out = layer(x)
            x = x + (out[0] if isinstance(out, tuple) else out)
        made: Tensor = self.head(x)
        return made
